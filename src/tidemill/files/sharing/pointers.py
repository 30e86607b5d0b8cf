"""Pointers of consumers: `consumers/<name>` says up to which seq a consumer is done.

A file has two slots of 32 bytes, which are written in turn: magic "TMCP", version, how many times
the pointer was written, the pointer, check. The slot that was written last counts; a write that was
torn leaves the other one. The consumer that uses a file has it locked; the owner of the queue reads
it without, for pointers only move forward.

The order of effects, where a consumer is new and the owner gives disk back at the same time:

    consumer   1. the file is there, and holds back everything   2. it looks how far the queue is
    owner      1. it sees what no fork needs                     2. it looks at all pointers

So if the owner misses the file, then what it takes away came before the consumer's beginning.
"""

from __future__ import annotations

import logging
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

import xxhash

from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.sharing.lock import FileLock
from tidemill.limits import INT64_MAX
from tidemill.names import check_unique

logger = logging.getLogger(__name__)

FOLDER = "consumers"
MAGIC = b"TMCP"
VERSION = 1
SLOT_BYTES = 32
NOT_BEGUN = -1  # the pointer of a consumer that has yet to say where it begins
_FIELDS = struct.Struct("<4sIqq")
_CHECK = struct.Struct("<Q")
_digest = xxhash.xxh3_64_intdigest
_DRAFT = re.compile(r"\..+\.\d+-\d+")  # the name of a file that is being made


class Slot(NamedTuple):
    """What a consumer's file says."""

    writes: int  # how many there were before
    pointer: int


def read_slot(file: File) -> Slot | None:
    """The slot that was written last; None if neither is whole."""
    data = file.pread(2 * SLOT_BYTES, 0)
    found = []
    for start in (0, SLOT_BYTES):
        slot = data[start : start + SLOT_BYTES]
        if len(slot) == SLOT_BYTES and _CHECK.unpack_from(slot, 24)[0] == _digest(slot[:24]):
            magic, version, writes, pointer = _FIELDS.unpack(slot[:24])
            if (magic, version) == (MAGIC, VERSION):
                found.append(Slot(writes, pointer))
    return max(found, default=None)


def write_slot(file: File, slot: Slot) -> None:
    """Write the slot whose turn it is."""
    fields = _FIELDS.pack(MAGIC, VERSION, slot.writes, slot.pointer)
    file.pwrite([fields + _CHECK.pack(_digest(fields))], slot.writes % 2 * SLOT_BYTES)


def pointer_names(fs: FileSystem, path: Path) -> list[str]:
    """The names of all consumers, and of those whose removal was broken off."""
    try:
        names = fs.list_folder(path / FOLDER)
    except FileNotFoundError:
        return []
    # One that begins with a dot is that of a lock, or of a file that is being made.
    return [name for name in names if not name.startswith(".")]


def read_pointers(fs: FileSystem, path: Path) -> dict[str, int]:
    """The pointers of all consumers, by name. One that cannot be read holds back everything."""
    pointers = {}
    for name in pointer_names(fs, path):
        try:
            file = fs.open(path / FOLDER / name)
        except FileNotFoundError:
            continue  # It was removed meanwhile.
        try:
            slot = read_slot(file)
            if slot is None and not file.size():
                continue  # It is being removed.
        finally:
            file.close()
        if slot is None:
            logger.warning("the pointer of consumer %r of %s cannot be read", name, path)
        pointers[name] = max(slot.pointer, 0) if slot is not None else 0
    return pointers


def least_pointer(fs: FileSystem, path: Path) -> int:
    """Up to which seq all consumers are done."""
    return min(read_pointers(fs, path).values(), default=INT64_MAX)


def sync_pointers(fs: FileSystem, path: Path) -> None:
    """Have on disk where the consumers stand, also those that need not be synced with each ack:
    what they are done with is about to go.
    """
    for name in pointer_names(fs, path):
        try:
            file = fs.open(path / FOLDER / name)
        except FileNotFoundError:
            continue  # It was removed meanwhile.
        try:
            file.sync()
        finally:
            file.close()


def take_back_pointers(fs: FileSystem, path: Path, arrived: int) -> None:
    """Let no pointer stand behind the last item, where items were lost that need not be synced:
    the next ones get the same seqs.
    """
    for name, pointer in read_pointers(fs, path).items():
        if pointer > arrived:
            logger.warning(
                "consumer %r of %s goes back from %d to %d: the items between are lost",
                name,
                path,
                pointer,
                arrived,
            )
            file = fs.open(path / FOLDER / name, write=True)
            try:
                move(file, arrived, sync=True)
            finally:
                file.close()


def move(file: File, pointer: int, *, sync: bool) -> None:
    """Write a pointer."""
    slot = read_slot(file)
    write_slot(file, Slot(0 if slot is None else slot.writes + 1, pointer))
    if sync:
        file.sync()


def open_pointer(fs: FileSystem, path: Path, name: str) -> FileLock | None:
    """The locked file of a consumer, which is made if it is not there; None if another has it."""
    folder = path / FOLDER
    while True:
        try:
            lock = lock_pointer(fs, folder / name)
        except FileNotFoundError:
            check_unique(name, pointer_names(fs, path), what="consumer")
            make_pointer(fs, folder, name)
            continue
        if lock is not None:
            try:
                make_last(fs, path, lock)
            except BaseException:
                lock.release()
                raise
        return lock


def make_last(fs: FileSystem, path: Path, lock: FileLock) -> None:
    """Bring to the disk what is found of a consumer: whoever made it or moved it may have been
    killed before it did so, and who relies on the pointer now would miss items without it.
    """
    lock.file.sync()
    fs.sync_folder(path / FOLDER)
    fs.sync_folder(path)


def lock_pointer(fs: FileSystem, path: Path) -> FileLock | None:
    """The locked file of a consumer that is there; None if another has it."""
    while True:
        lock = FileLock.try_acquire(fs, path)
        if lock is None or lock.file.size():
            return lock
        try:
            # It was removed between being found and being locked. Whoever does that lets go of the
            # lock when the name is gone, so that one whose name is there died on the way.
            if lock.file.links() and _is_empty(fs, path):
                fs.unlink(path)
                fs.sync_folder(path.parent)
        finally:
            lock.release()


def _is_empty(fs: FileSystem, path: Path) -> bool:
    file = fs.open(path)
    try:
        return not file.size()
    finally:
        file.close()


def remove_pointer(fs: FileSystem, path: Path, name: str, lock: FileLock) -> None:
    """Remove the file of a consumer; whoever waits for its lock must see that it is gone."""
    try:
        lock.file.truncate(0)
        fs.unlink(path / FOLDER / name)
        fs.sync_folder(path / FOLDER)
    finally:
        # Also after an error: whoever comes next then finds it whole, or finishes this.
        lock.release()


def make_pointer(fs: FileSystem, folder: Path, name: str) -> None:
    """Make the file of a consumer that has yet to say where it begins."""
    if FOLDER not in fs.list_folder(folder.parent):
        try:
            fs.make_folder(folder)
        except FileExistsError:
            pass  # Another was faster.
        fs.sync_folder(folder.parent)
    while True:
        draft, file = _new_draft(fs, folder, name)
        try:
            write_slot(file, Slot(0, NOT_BEGUN))
            file.sync()
        finally:
            file.close()
        try:
            fs.link(draft, folder / name)
        except FileExistsError:
            pass  # Another was faster.
        except FileNotFoundError:
            continue  # Somebody who just became the owner took it for one that a crash left.
        _drop(fs, draft)
        fs.sync_folder(folder)
        return


def _new_draft(fs: FileSystem, folder: Path, name: str) -> tuple[Path, File]:
    """A file that is nobody else's: threads, and processes with numbers of their own in containers,
    may make the same consumer at the same time.
    """
    number = 0
    while True:
        draft = folder / f".{name}.{os.getpid()}-{number}"
        try:
            return draft, fs.open(draft, create=True)
        except FileExistsError:
            number += 1


def is_draft(name: str) -> bool:
    """Whether a file of this name is a consumer that is being made."""
    return _DRAFT.fullmatch(name) is not None


def _drop(fs: FileSystem, path: Path) -> None:
    try:
        fs.unlink(path)
    except FileNotFoundError:
        pass  # Another was faster.


def sweep_pointers(fs: FileSystem, path: Path) -> list[str]:
    """Finish what those were at who died while they made or removed a consumer; returns the names
    of the files that are gone.
    """
    folder = path / FOLDER
    try:
        drafts = [name for name in fs.list_folder(folder) if is_draft(name)]
    except FileNotFoundError:
        return []
    for name in drafts:
        _drop(fs, folder / name)
    emptied = []
    for name in pointer_names(fs, path):
        try:
            if _is_empty(fs, folder / name):
                lock = lock_pointer(fs, folder / name)
                if lock is not None:
                    lock.release()
        except FileNotFoundError:
            emptied.append(name)
    return drafts + emptied


def try_sweep_pointers(fs: FileSystem, path: Path) -> None:
    """The same for an owner, who has more important things to do than to fail over it."""
    try:
        for name in sweep_pointers(fs, path):
            logger.info("removed %s, which a process left behind in %s", name, path / FOLDER)
    except OSError as error:
        logger.warning("what was left behind in %s stays for now: %s", path / FOLDER, error)
