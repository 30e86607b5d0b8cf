"""Turns what the operating system says into errors of ours."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tidemill.errors import DiskFull, InvalidName, NoAccess, StorageFailed, TidemillError
from tidemill.files.disk.filesystem import FileSystem

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP}


def typed(error: OSError, doing: str, path: Path) -> TidemillError:
    """The error of ours that says what `error` stopped us from doing."""
    reason = error.strerror or str(error)
    if error.errno == errno.ENAMETOOLONG:
        return InvalidName(f"the name {path} is too long for the file system; choose a shorter one")
    if isinstance(error.filename, str) and Path(error.filename) != path:
        # Of a whole folder only one file may be at fault.
        reason = f"{error.filename}: {reason}"
    if error.errno in _FULL:
        return DiskFull(f"no room while {doing} {path}: {reason}; free some space and try again")
    if error.errno in _FORBIDDEN:
        return NoAccess(f"no access while {doing} {path}: {reason}; check owner, mode and mount")
    return StorageFailed(
        f"the disk failed while {doing} {path}: {reason}; close the queue, check the disk, "
        "and open it again"
    )


@contextmanager
def storage_errors(doing: str, path: Path) -> Iterator[None]:
    """Raise an error of ours where the block raises `OSError`."""
    try:
        yield
    except OSError as error:
        raise typed(error, doing, path) from error


def drop_file(fs: FileSystem, path: Path) -> None:
    """Unlink a file if it is there."""
    if path.name in fs.list_folder(path.parent):
        fs.unlink(path)
