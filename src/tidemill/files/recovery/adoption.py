"""Segments of another queue that a journal takes over as they are: the names of their files.

They get numbers behind the active segment's, and a further segment behind them becomes the active
one. That one's opening state names them, and no longer those that stood before: with it, the
adoption has happened.

    1. each file gets a second name, 0000000000000043.adopted, which no reader of a journal looks at
    2. the folder is synced
    3. the new active segment is made, as any other: written, synced, and the folder synced
    4. the adopted files get their proper names, 0000000000000043.segment, and the folder is synced

Between 1 and 3 a crash leaves names that nothing refers to, and opening removes them; between 3 and
4, opening does what was left to do. Until step 4 is through, the files have their old names in the
other folder as well.
"""

from __future__ import annotations

import logging
import re
from pathlib import Path

from tidemill.errors import Corrupt, UnknownFormat
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.format.origin import Origin
from tidemill.files.format.record import Kind
from tidemill.files.journal.scan import Found, scan
from tidemill.files.journal.segment import segment_path
from tidemill.files.journal.spine import SpineEntry, unpack_entries
from tidemill.files.state.state import State

logger = logging.getLogger(__name__)

_NAME = re.compile(r"(\d{16})\.(segment|adopted)")


def waiting_path(folder: Path, number: int) -> Path:
    """The name of a file between the steps 1 and 4."""
    return segment_path(folder, number).with_suffix(".adopted")


def settle(fs: FileSystem, folder: Path) -> dict[int, Origin]:
    """Finish an adoption that a crash interrupted, or undo it; returns where segments come from."""
    names = [name for name in fs.list_folder(folder) if _NAME.fullmatch(name)]
    waiting = [int(name[:16]) for name in names if name.endswith(".adopted")]
    name, adopted = _newest_account(fs, folder, names)
    if not waiting:
        return adopted
    if adopted.keys() & set(waiting):
        _make_last(fs, folder / name)
        fs.sync_folder(folder)
    for number in waiting:
        path = waiting_path(folder, number)
        if number in adopted:
            fs.rename(path, segment_path(folder, number))
        else:
            logger.info("%s was never adopted, and is removed", path)
            fs.unlink(path)
    fs.sync_folder(folder)
    return adopted


def origins_in(fs: FileSystem, folder: Path) -> dict[int, Origin]:
    """Where segments come from, as far as it can be read, also beside the owner of the folder."""
    while True:
        names = fs.list_folder(folder)
        try:
            return _newest_account(fs, folder, names)[1]
        except FileNotFoundError:
            continue  # It went meanwhile, so that another one is the newest.


def _newest_account(
    fs: FileSystem, folder: Path, names: list[str]
) -> tuple[str, dict[int, Origin]]:
    """(the newest segment that says where segments come from, what it says)."""
    for name in sorted(names, reverse=True):
        if name.endswith(".segment") and _NAME.fullmatch(name):
            state = _opening_state(fs, folder / name)
            if state is not None:
                return name, state.adopted
    return "", {}


def _opening_state(fs: FileSystem, path: Path) -> State | None:
    """The state that opens a segment; None if it was never finished, or cannot be read: recovery
    will meet what is wrong with it, and say so.

    An adopted segment has none here, for its records stand under another number.
    """
    try:
        opening = _opening(fs, path)
        return None if opening is None else State.from_json(opening.payload)[0]
    except (Corrupt, UnknownFormat) as error:
        logger.warning("%s does not tell which segments were adopted: %s", path, error)
        return None


def _opening(fs: FileSystem, path: Path) -> Found | None:
    number = int(path.name[:16])
    opening: Found | None = None
    file = fs.open(path)
    try:
        for at, found in enumerate(scan(file, number, _read_spine(fs, path))):
            if isinstance(found, Found):
                if at < 2 and found.envelope.kind is Kind.STATE:
                    opening = opening or found
                if opening is None and at >= 2:
                    return None
                if found.envelope.commit:
                    return opening
    finally:
        file.close()
    return None


def _read_spine(fs: FileSystem, path: Path) -> list[SpineEntry]:
    """Leads past a copy of the state whose length cannot be read."""
    try:
        file = fs.open(path.with_suffix(".spine"))
    except OSError:
        return []
    try:
        return unpack_entries(file.pread(file.size(), 0))
    except OSError as error:
        logger.warning("spine of %s cannot be read: %s", path, error)
        return []
    finally:
        file.close()


def _make_last(fs: FileSystem, path: Path) -> None:
    """Have the opening state on disk, even if it was only in the kernel's memory."""
    file = fs.open(path, write=True)
    try:
        opening = [
            found for found in scan(file, int(path.name[:16]), []) if isinstance(found, Found)
        ][:2]
        # Written again, because after a failed sync the kernel takes its pages for clean.
        length = sum(found.envelope.total_bytes for found in opening)
        file.pwrite([file.pread(length, 0)], 0)
        file.sync()
    finally:
        file.close()
