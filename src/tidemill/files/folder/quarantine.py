"""Damaged records are set aside, not destroyed: their bytes are copied to a folder, with the reason
beside them.

    0000000000000041-0000000640.record   the bytes, from segment 41, offset 640
    0000000000000041-0000000640.json     where they stood, how many, and what is wrong with them

The queue does not read the copies. They are for people, who may save, push back or drop them.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemill.errors import InvalidInput
from tidemill.files import advice
from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.format.record import make_place, split_place
from tidemill.files.report import Findings
from tidemill.shown import counted

FOLDER = "quarantine"
_NAME = re.compile(r"(\d{16})-(\d{10})")
_WORDS_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class Copy:
    """One record that was set aside, as far as its copy tells."""

    name: str
    place: int
    bytes: int  # of the copy
    reason: str
    pushed_back: tuple[int, int] | None = None  # the seqs that its items got, if they were
    problem: str | None = None  # with the words beside it


def keep_copy(fs: FileSystem, root: Path, *, place: int, data: bytes, reason: str) -> Path:
    """Copy the bytes of a damaged record to the quarantine; returns the copy's path."""
    folder = root / FOLDER
    if FOLDER not in fs.list_folder(root):
        fs.make_folder(folder)
    fs.sync_folder(root)  # Also if it was there: whoever made it may have died before this.
    segment, offset = split_place(place)
    name = f"{segment:016d}-{offset:010d}"
    words = {"segment": segment, "offset": offset, "bytes": len(data), "reason": reason}
    _write(fs, folder / f"{name}.record", data)
    _write(fs, folder / f"{name}.json", _pack(words))
    fs.sync_folder(folder)
    return folder / f"{name}.record"


def names_of_copies(fs: FileSystem, root: Path) -> list[str]:
    """The names of all copies, by place."""
    if FOLDER not in fs.list_folder(root):
        return []
    names = fs.list_folder(root / FOLDER)
    return [
        name.removesuffix(".record")
        for name in names
        if name.endswith(".record") and _NAME.fullmatch(name.removesuffix(".record"))
    ]


def read_copy(fs: FileSystem, root: Path, name: str) -> Copy:
    """What is known of a copy; its name alone tells where it stood."""
    match = _NAME.fullmatch(name)
    try:
        if match is None:
            raise FileNotFoundError(name)
        file = fs.open(root / FOLDER / f"{name}.record")
    except FileNotFoundError as error:
        raise InvalidInput(
            f"no record {name!r} is set aside in {root}; list them for their names"
        ) from error
    try:
        size = file.size()
    finally:
        file.close()
    place = make_place(int(match[1]), int(match[2]))
    try:
        words = _read_words(fs, root, name)
        stated = make_place(int(words["segment"]), int(words["offset"])), int(words["bytes"])
        seqs = words.get("pushed_back")
        pushed_back = None if seqs is None else (int(seqs[0]), int(seqs[1]))
        reason = str(words["reason"])
    except (
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        OverflowError,
        RecursionError,
    ) as error:
        return Copy(name, place, size, "", problem=f"the words beside the copy: {error!r}")
    except FileNotFoundError:
        return Copy(name, place, size, "", problem="the words beside the copy are missing")
    problem = None if stated == (place, size) else "the words beside the copy are about another one"
    return Copy(name, place, size, reason, pushed_back, problem)


def read_bytes(fs: FileSystem, root: Path, name: str, bytes_max: int | None = None) -> bytes:
    """The bytes of a record that was set aside, or the first of them."""
    return _read(fs.open(root / FOLDER / f"{name}.record"), bytes_max)


def note_pushed_back(fs: FileSystem, root: Path, name: str, seqs: tuple[int, int]) -> None:
    """Remember beside a copy that its items are in the queue again."""
    path = root / FOLDER / f"{name}.json"
    draft = path.with_suffix(".json.new")
    copy = read_copy(fs, root, name)
    segment, offset = split_place(copy.place)
    words = {"segment": segment, "offset": offset, "bytes": copy.bytes, "reason": copy.reason}
    _write(fs, draft, _pack({**words, "pushed_back": list(seqs)}))
    fs.rename(draft, path)
    fs.sync_folder(path.parent)


def remove_copy(fs: FileSystem, root: Path, name: str) -> None:
    """Destroy a copy."""
    folder = root / FOLDER
    for suffix in (".record", ".json"):
        if name + suffix in fs.list_folder(folder):
            fs.unlink(folder / (name + suffix))
    fs.sync_folder(folder)


def check_copies(
    fs: FileSystem, root: Path, quarantined: dict[int, int], findings: Findings
) -> None:
    """Hold the copies against what the journal says was set aside: place → rows."""
    kept = set()
    for name in names_of_copies(fs, root):
        copy = read_copy(fs, root, name)
        if copy.problem is not None:
            findings.warn(
                "copy", root / FOLDER / f"{name}.json", f"{copy.problem}; the copy itself is there"
            )
        kept.add(copy.place)
        if copy.place not in quarantined:
            findings.note(
                "copy",
                root / FOLDER / f"{name}.record",
                "the journal does not know of this copy: a process died while it set the record "
                "aside, or the copy is from elsewhere",
            )
    if kept & quarantined.keys():
        findings.note(
            "quarantine",
            root / FOLDER,
            f"{counted(len(kept & quarantined.keys()), 'damaged record')} set aside and kept here",
            f"{advice.quarantine(root)}; then save, push back or drop each",
            items=sum(quarantined[place] for place in kept & quarantined.keys()),
        )
    gone = quarantined.keys() - kept
    if gone:
        findings.note(
            "quarantine",
            root / FOLDER,
            f"{counted(len(gone), 'damaged record')} set aside without a copy that is kept",
            items=sum(quarantined[place] for place in gone),
        )


def _read_words(fs: FileSystem, root: Path, name: str) -> dict[str, Any]:
    words = json.loads(_read(fs.open(root / FOLDER / f"{name}.json"), _WORDS_BYTES_MAX))
    if not isinstance(words, dict):
        raise ValueError("no object")
    return words


def _read(file: File, bytes_max: int | None = None) -> bytes:
    try:
        size = file.size()
        return file.pread(size if bytes_max is None else min(size, bytes_max), 0)
    finally:
        file.close()


def _pack(words: dict[str, Any]) -> bytes:
    return json.dumps(words, indent=2).encode()


def _write(fs: FileSystem, path: Path, data: bytes) -> None:
    try:
        file = fs.open(path, create=True)
    except FileExistsError:
        fs.unlink(path)
        file = fs.open(path, create=True)
    try:
        file.pwrite([data], 0)
        file.sync()
    finally:
        file.close()
