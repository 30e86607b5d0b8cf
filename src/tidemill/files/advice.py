"""The commands that errors and findings tell people to run, in one place. Pure."""

from __future__ import annotations

import shlex
from pathlib import Path


def doctor(folder: Path, *options: str) -> str:
    """The command that looks at a folder, in backquotes.

    >>> doctor(Path("my spool"), "--set-aside")
    "`tidemill doctor 'my spool' --set-aside`"
    """
    return f"`{shlex.join(['tidemill', 'doctor', str(folder), *options])}`"


def upgrade(folder: Path) -> str:
    """The command that brings a folder of an older format up to date, in backquotes."""
    return f"`{shlex.join(['tidemill', 'upgrade', str(folder)])}`"


def quarantine(folder: Path) -> str:
    """The command that lists what was set aside, in backquotes."""
    return f"`{shlex.join(['tidemill', 'quarantine', 'list', str(folder)])}`"


def ask_or_remove(folder: Path, consumer: str) -> str:
    """What to do about a consumer that nobody uses."""
    command = shlex.join(["tidemill", "consumers", str(folder), "--remove", consumer])
    return f"ask for the consumer again, or end it with `{command}`"


def set_aside(folder: Path) -> str:
    return f"copy the folder, then set the record aside with {doctor(folder, '--set-aside')}"


def rewrite(folder: Path) -> str:
    return f"{doctor(folder, '--set-aside')} rewrites the segment, which loses nothing here"


def rebuild(folder: Path) -> str:
    return f"{doctor(folder, '--repair')} makes it again"


RESTORE = "restore the folder from a backup"
RESTORE_SETTINGS = "restore the file from a backup: it changes only when the schema does"
REPORT_BUG = "please report this, with the folder if you can"
