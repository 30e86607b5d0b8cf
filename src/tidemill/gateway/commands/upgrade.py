"""`tidemill upgrade`: a folder of an older format, brought up to date."""

from __future__ import annotations

import argparse

from tidemill.files.folder.upgrade import upgrade
from tidemill.gateway.arguments import add_queue
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console


def run(options: argparse.Namespace, console: Console) -> None:
    done = upgrade(options.queue)
    if done.changed:
        words = f"upgraded {options.queue} from format {done.before} to {done.after}"
    else:
        words = f"{options.queue} has format {done.after} already"
    console.result(words, {"before": done.before, "after": done.after, "upgraded": done.changed})


COMMAND = Command(
    name="upgrade",
    summary="bring a folder of an older format up to date, keeping every item",
    details="There is no way back: an older release refuses the folder from then on.",
    examples=("tidemill upgrade spool/",),
    arguments=add_queue,
    run=run,
)
