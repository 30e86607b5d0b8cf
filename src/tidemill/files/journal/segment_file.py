"""The file of a segment that begins: a spare one, or a new one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidemill.files.disk.filesystem import Buffer, FileSystem
from tidemill.files.disk.open_files import OpenFiles, PooledFile
from tidemill.files.disk.storage import drop_file
from tidemill.files.journal.rest import END_MARK
from tidemill.files.journal.spare import SpareFile


def make_file(
    fs: FileSystem,
    files: OpenFiles,
    path: Path,
    length: int,
    parts: Sequence[Buffer],
    spare: SpareFile | None,
) -> tuple[PooledFile, int, int]:
    """(the file with its first bytes, so that it lasts; its length; up to where it may hold old
    bytes).
    """
    file = None if spare is None else files.given(path, spare.file)
    try:
        drop_file(fs, path)
        if file is None:
            file = files.create(path)
        file.allocate(length)
        file.pwrite([*parts, END_MARK], 0)
        file.sync()
        if spare is not None:
            length = file.size()
            # Not before it is synced: whoever finds the name finds the segment.
            fs.rename(spare.path, path)
        fs.sync_folder(path.parent)
    except OSError:
        if file is not None:
            file.close()
        raise
    return file, length, 0 if spare is None else spare.written


def unmake_file(fs: FileSystem, path: Path, spare: SpareFile | None) -> None:
    """Take away what making it left."""
    if spare is not None:
        drop_file(fs, spare.path)
    drop_file(fs, path)
    fs.sync_folder(path.parent)
