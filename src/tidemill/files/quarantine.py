"""Damaged records are set aside, not destroyed: their bytes are copied to a folder, with the reason
beside them.
"""

from __future__ import annotations

import json
from pathlib import Path

from tidemill.files.filesystem import FileSystem
from tidemill.files.record import split_place

FOLDER = "quarantine"


def keep_copy(fs: FileSystem, root: Path, *, place: int, data: bytes, reason: str) -> Path:
    """Copy the bytes of a damaged record to the quarantine; returns the copy's path."""
    folder = root / FOLDER
    if FOLDER not in fs.list_folder(root):
        fs.make_folder(folder)
        fs.sync_folder(root)
    segment, offset = split_place(place)
    name = f"{segment:016d}-{offset:010d}"
    words = {"segment": segment, "offset": offset, "bytes": len(data), "reason": reason}
    for suffix, content in ((".record", data), (".json", json.dumps(words, indent=2).encode())):
        path = folder / (name + suffix)
        if path.name in fs.list_folder(folder):
            fs.unlink(path)
        file = fs.open(path, create=True)
        try:
            file.pwrite([content], 0)
            file.sync()
        finally:
            file.close()
    fs.sync_folder(folder)
    return folder / (name + ".record")
