"""Consumers of a log in a folder: a pointer in a file, and the token of who may move it.

    consumers/billing   ┌ 32 bytes ┬ 32 bytes ┬ 32 bytes ┐
                        │  slot    │  slot    │  token   │    slots as in `pointers`
                        └──────────┴──────────┴──────────┘

Any process may claim a consumer: it writes a token of its own, and who held the one before it is
fenced. Every step is made under the file's lock, which is held for moments. The token is not
synced: whoever held it is gone after a power failure, and a torn one fences everybody.

A consumer is made, and rows are trimmed, under one more lock (`consumers/.lock`), so that neither
happens in the middle of the other.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import xxhash

from tidemill.files.disk.filesystem import File, FileSystem
from tidemill.files.sharing.lock import FileLock, held
from tidemill.files.sharing.pointers import (
    FOLDER,
    NOT_BEGUN,
    SLOT_BYTES,
    lock_pointer,
    make_last,
    make_pointer,
    move,
    read_pointers,
    read_slot,
    remove_pointer,
)
from tidemill.log.contract import ConsumerClaim, ConsumerState
from tidemill.log.refusals import consumer_fenced
from tidemill.names import check_name, check_unique

_LOCK_NAME = ".lock"

_MAGIC = b"TMCT"
_VERSION = 1
_FIELDS = struct.Struct("<4sIQQ")
_CHECK = struct.Struct("<Q")
_digest = xxhash.xxh3_64_intdigest


class Consumers:
    """The consumers of one log."""

    def __init__(self, fs: FileSystem, path: Path, *, sync: bool) -> None:
        self._fs = fs
        self._path = path
        self._sync = sync  # whether a pointer that moves is on disk when the call returns

    def all(self) -> dict[str, ConsumerState]:
        """All consumers, by name."""
        found = {}
        for name, pointer in read_pointers(self._fs, self._path).items():
            try:
                file = self._fs.open(self._path / FOLDER / name)
            except FileNotFoundError:
                continue  # It was removed meanwhile.
            try:
                found[name] = ConsumerState(pointer, _read_token(file))
            finally:
                file.close()
        return found

    @contextmanager
    def settled(self) -> Iterator[int | None]:
        """The least pointer, while no consumer is made; None if there are none."""
        with self._lock(_LOCK_NAME):
            pointers = read_pointers(self._fs, self._path)
            pointers.pop(_LOCK_NAME, None)
            yield min(pointers.values(), default=None)

    def claim(self, name: str, begin: Callable[[], int]) -> ConsumerClaim:
        """Take a new token; `begin` says where a consumer stands that is new."""
        check_name(name, what="consumer")
        try:
            with self._lock(name) as lock:
                slot = read_slot(lock.file)
                if slot is not None and slot.pointer != NOT_BEGUN:
                    make_last(self._fs, self._path, lock)
                    return self._take(lock.file, name, slot.pointer)
        except FileNotFoundError:
            pass  # It is new.
        with self._lock(_LOCK_NAME):
            check_unique(name, read_pointers(self._fs, self._path), what="consumer")
            make_pointer(self._fs, self._path / FOLDER, name)
            with self._lock(name) as lock:
                slot = read_slot(lock.file)
                if slot is None or slot.pointer == NOT_BEGUN:
                    pointer = begin()
                    move(lock.file, pointer, sync=False)
                else:
                    pointer = slot.pointer
                make_last(self._fs, self._path, lock)
                return self._take(lock.file, name, pointer)

    def move(self, claim: ConsumerClaim, pointer: int) -> None:
        """Store a pointer, if the token still counts and it goes forward."""
        try:
            with self._lock(claim.name) as lock:
                slot = read_slot(lock.file)
                if slot is None or _read_token(lock.file) != claim.token:
                    raise consumer_fenced(claim.name)
                if pointer > slot.pointer:
                    move(lock.file, pointer, sync=self._sync)
        except FileNotFoundError as error:
            raise consumer_fenced(claim.name) from error

    def check(self, claim: ConsumerClaim) -> None:
        """Raise `Fenced` unless the token still counts."""
        try:
            file = self._fs.open(self._path / FOLDER / claim.name)
        except FileNotFoundError as error:
            raise consumer_fenced(claim.name) from error
        try:
            # Read without the lock: a token that is being written is not this one.
            if _read_token(file) != claim.token:
                raise consumer_fenced(claim.name)
        finally:
            file.close()

    def remove(self, name: str) -> None:
        """End a consumer, if it is there."""
        try:
            with self._lock(name) as lock:
                remove_pointer(self._fs, self._path, name, lock)
        except FileNotFoundError:
            pass

    def _take(self, file: File, name: str, pointer: int) -> ConsumerClaim:
        token = secrets.randbits(62) + 1
        fields = _FIELDS.pack(_MAGIC, _VERSION, token, 0)
        file.pwrite([fields + _CHECK.pack(_digest(fields))], 2 * SLOT_BYTES)
        return ConsumerClaim(name, token, pointer)

    def _lock(self, name: str) -> AbstractContextManager[FileLock]:
        """Hold the lock of a file; `FileNotFoundError` if there is no such consumer."""
        path = self._path / FOLDER / name
        acquire = lock_pointer
        if name == _LOCK_NAME:
            self._make_lock(path)
            acquire = FileLock.try_acquire
        return held(acquire, self._fs, path)

    def _make_lock(self, path: Path) -> None:
        """The lock of all consumers, which need not last: it says nothing by being there."""
        fs = self._fs
        if FOLDER not in fs.list_folder(self._path):
            try:
                fs.make_folder(path.parent)
            except FileExistsError:
                pass  # Another was faster.
            fs.sync_folder(self._path)
        if path.name not in fs.list_folder(path.parent):
            try:
                fs.open(path, create=True).close()
            except FileExistsError:
                pass  # Another was faster.


def _read_token(file: File) -> int:
    """The token in a consumer's file; 0, which nobody has, if there is none that is whole."""
    data = file.pread(_FIELDS.size + _CHECK.size, 2 * SLOT_BYTES)
    fields = data[: _FIELDS.size]
    if len(data) < _FIELDS.size + _CHECK.size:
        return 0
    magic, version, token, _ = _FIELDS.unpack(fields)
    if _CHECK.unpack_from(data, _FIELDS.size)[0] != _digest(fields):
        return 0
    return int(token) if (magic, version) == (_MAGIC, _VERSION) else 0
