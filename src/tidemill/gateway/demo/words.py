"""What the demonstration says in the end."""

from __future__ import annotations

from pathlib import Path


def what_next(picture: Path | None, folder: Path | None) -> str:
    """Where the results are, and what to try.

    >>> print(what_next(Path("demo.svg"), None).splitlines()[0])
    the picture is in demo.svg: open it in a browser
    """
    lines = []
    if picture is not None:
        lines.append(f"the picture is in {picture}: open it in a browser")
    if folder is not None:
        lines.append(f"the queue is in {folder}, empty by now")
    return "\n".join([*lines, "", *_NEXT])


_NEXT = (
    "What to try next:",
    "  tidemill demo --items 20000000        more of it",
    "  tidemill demo --folder telemetry/     keep the folder, and look inside",
    "  tidemill --help                       queues from the shell",
    "  docs/tutorial.md                      the same in Python, step by step",
    "  make bench                            figures of your machine, next to other queues",
)
