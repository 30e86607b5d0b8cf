"""What the demonstration says in the end."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path


def what_next(picture: Path, folder: Path | None) -> str:
    """Where the results are, and what to try.

    >>> print(what_next(Path("demo.svg"), None).splitlines()[0])
    the picture is in demo.svg: open it in a browser
    """
    lines = [f"the picture is in {picture}: open it in a browser"]
    if folder is not None:
        lines.append(f"the queue is in {folder}, empty by now")
    command = _command()
    tries = {
        f"{command} demo --items 20000000": "more of it",
        f"{command} demo --folder telemetry/": "keep the folder, and look inside",
        f"{command} --help": "what else there is",
    }
    if Path("docs/tutorial.md").exists():
        # In a clone, where there is more to see.
        tries["docs/tutorial.md"] = "the queue in Python, step by step"
        tries["make bench"] = "figures of your machine, next to other queues"
    width = max(map(len, tries))
    lines += ["", "What to try next:"]
    lines += [f"  {one:<{width}}  {what}" for one, what in tries.items()]
    return "\n".join(lines)


def _command() -> str:
    """How this command is called from here."""
    if shutil.which("tidemill"):
        return "tidemill"
    return os.path.relpath(Path(sys.executable).with_name("tidemill"))
