"""The main job, end to end, as a demonstration that checks what it claims.

    devices ──▶ priority queues ──▶ log ──▶ pipeline on Spark ──▶ windows, a queue
      kill -9        merge, twice              kill -9        ├──▶ archive, Parquet
                                                              └──▶ bad rows, a log

readings    what the devices measure: each reading follows from its number
devices     the processes that push, one of which kills itself in the middle
pipeline    the pipeline, as a file that is copied to the folder and run from there
driver      ... run by a process of its own, which is killed once
processes   how such processes are started, so that they end with the main job
stages      what happens, step by step
proof       what came out, held against what went in
story       what was measured
report      all of it as a page for a browser
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from tidemill.gateway.demo.job import place
from tidemill.gateway.main_job.report import page
from tidemill.gateway.main_job.stages import Stages
from tidemill.gateway.result_file import check_result
from tidemill.progress import Progress


def run(
    *,
    items: int,
    folder: Path | None,  # where everything lives; None: a temporary folder
    report: Path,
    is_json: bool,  # one document in the end, and no words
    progress: Callable[[str], AbstractContextManager[Progress]],
    say: Callable[[str], None],
) -> None:
    """Run the main job, tell what it does, and write its report."""
    check_result(report, "report")
    tell: Callable[[str], None] = (lambda _: None) if is_json else say
    with place(folder) as path:
        story = Stages(items, path, tell=tell, progress=progress).run()
    report.write_text(page(story), encoding="utf-8")
    if is_json:
        say(json.dumps(story.document(report, folder)))
    else:
        say(_what_next(report, folder))


def _what_next(report: Path, folder: Path | None) -> str:
    """Where the results are, and what to try.

    >>> print(_what_next(Path("report.html"), None))
    the report is in report.html: open it in a browser
    with --folder everything stays, to be looked at
    """
    lines = [f"the report is in {report}: open it in a browser"]
    if folder is None:
        return "\n".join([*lines, "with --folder everything stays, to be looked at"])
    tries = {
        f"tidemill pipeline status {folder}/pipeline.py": "how far the pipeline is",
        f"tidemill peek {folder}/windows": "the first windows",
        f"tidemill receive {folder}/bad look --keep --rows 10": "rows that were set aside",
    }
    width = max(map(len, tries))
    lines += [
        "",
        "What to try next:",
        *[f"  {one:<{width}}  {what}" for one, what in tries.items()],
    ]
    return "\n".join(lines)
