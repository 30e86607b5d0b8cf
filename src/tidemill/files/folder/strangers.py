"""What a folder holds that is not ours: such a folder is left as it is.

A folder with settings of ours is a queue, whatever else lies there. One without may be new, or its
maker died before it was done; then it holds nothing but what making a queue leaves behind. Folders
in it that are links lead to what is not ours either.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from tidemill.errors import NoAccess, NotAQueue
from tidemill.files.disk.filesystem import FileSystem, Surroundings
from tidemill.files.folder.quarantine import FOLDER as QUARANTINE_NAME
from tidemill.files.format.settings import DRAFT_NAME, read_settings
from tidemill.files.format.settings import NAME as SETTINGS_NAME
from tidemill.files.journal.head import NAME as HEAD_NAME
from tidemill.files.journal.journal import JOURNAL_NAME
from tidemill.files.sharing.lock import NAME as LOCK_NAME
from tidemill.files.sharing.lock import is_owner_file
from tidemill.files.sharing.pin import FOLDER as READERS_NAME
from tidemill.files.sharing.pointers import FOLDER as CONSUMERS_NAME
from tidemill.files.staging.staging import FOLDER as STAGING_NAME

# Whatever lies in these is taken for the queue's own.
FOLDERS = (JOURNAL_NAME, QUARANTINE_NAME, READERS_NAME, CONSUMERS_NAME, STAGING_NAME)
_OURS = {SETTINGS_NAME, DRAFT_NAME, LOCK_NAME, HEAD_NAME, *FOLDERS}
_OF_THE_JOURNAL = re.compile(r"\d{16}\.(segment|summary|spine|spare)")


def refuse_strangers(fs: FileSystem, folder: Path, names: Collection[str], kind: str) -> None:
    """Raise unless the folder, which holds these names, is a queue or can become one."""
    if SETTINGS_NAME in names:
        if LOCK_NAME not in names:
            # Whoever made these settings never had it open: they are read before the lock is made.
            read_settings(fs, folder, kind=kind)
        return
    strange = sorted(name for name in names if name not in _OURS)
    if not strange and LOCK_NAME in names and not is_owner_file(fs, folder / LOCK_NAME):
        strange = [LOCK_NAME]
    if not strange and JOURNAL_NAME in names:
        try:
            inside = fs.list_folder(folder / JOURNAL_NAME)
        except NotADirectoryError:
            strange = [JOURNAL_NAME]
        else:
            others = sorted(name for name in inside if not _OF_THE_JOURNAL.fullmatch(name))
            strange = [f"{JOURNAL_NAME}/{name}" for name in others]
    if strange:
        raise NotAQueue(
            f"{folder} holds {strange[0]!r} and is no queue; give an empty or a new folder"
        )


def refuse_links(fs: FileSystem, folder: Path) -> None:
    """Raise if a folder within the folder of a queue is a link: what it leads to is not ours to
    write to. Files are refused when they are opened.
    """
    if not isinstance(fs, Surroundings):
        return  # It has no links.
    for name in FOLDERS:
        try:
            found = fs.facts(folder / name)
        except FileNotFoundError:
            continue
        if not found.is_folder and not found.is_file:
            raise NoAccess(
                f"{folder / name} is a link or the like, and those inside a queue are not "
                "followed; put the folder itself there"
            )
