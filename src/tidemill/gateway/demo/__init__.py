"""One queue alone, as a demonstration that checks what it claims; the main job is next door.

    telemetry   the events: which device takes what when, and in which order it arrives
    devices     the process that pushes them, and kills itself in the middle
    job         what happens, step by step: push, crash, open, audit, push the rest, pop
    inventory   which events are there: lost, doubled, torn or wrong ones show
    record      what was measured
    picture     the record as a drawing
    words       what is said in the end

It uses the public face of the package alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from tidemill.gateway.demo.job import Demo, Showing, place
from tidemill.gateway.demo.words import what_next
from tidemill.gateway.result_file import check_result


class _Nothing:
    def show(self, rows: int, share: float | None = None) -> None:
        pass


def run(
    *,
    items: int,
    folder: Path | None = None,  # of the queue; None: a temporary one
    picture: Path,
    is_json: bool = False,  # one document in the end, and no words
    progress: Callable[[str], AbstractContextManager[Showing]] = lambda _: nullcontext(_Nothing()),
    say: Callable[[str], None] = print,
) -> None:
    """Run the demonstration, print what it does, and write its picture."""
    check_result(picture)
    tell: Callable[[str], None] = (lambda _: None) if is_json else say
    tell(f"{items:,} telemetry events go through a queue in a folder, out of order, on two ends")
    with place(folder) as path:
        demo = Demo(items, path, tell=tell, progress=progress)
        record = demo.run()
    demo.draw(picture)
    if is_json:
        say(json.dumps(record.document(picture, folder)))
    else:
        say(what_next(picture, folder))
