"""What a crash may still take back at one point of a trace, and the disk that is left for each
choice.

Invariant: within a file, and within a folder, operations take effect in their order, whichever of
them are lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import xxhash

from tests.faults.tears import TearAt
from tests.faults.trace import (
    EMPTY,
    ROOT,
    Allocate,
    Content,
    DataOperation,
    Entry,
    Image,
    Mark,
    NameChange,
    Operation,
    Sync,
    SyncFolder,
    Truncate,
    Write,
)

# Contents remembered at once: enough for the choices at one point, few enough for memory.
_MEMO_MAX = 8192


@dataclass(slots=True, eq=False)
class Unit:
    """An operation, or the half of a rename that concerns one folder, that is kept or lost as a
    whole.
    """

    operation: DataOperation | NameChange
    index: int
    # Its place in the mask of kept units; it moves down as units before it become durable.
    bit: int = 0
    put: Entry | None = None
    removed: Entry | None = None
    # The removal of the old name across folders never lasts without the new name: no file system
    # loses a file so.
    needs: Unit | None = None
    # A sync of it failed: no later sync makes it last.
    doubtful: bool = False
    # It lasts, but stays in the list of its file for its order among doubtful ones.
    fixed: bool = False

    def __str__(self) -> str:
        if self.needs is not None:
            return f"{self.operation} (the old name)"
        return str(self.operation)


Folders: TypeAlias = dict[int, dict[str, int]]


@dataclass(slots=True)
class _Names:
    """The names that one choice leaves: folders in reach, files in reach with their inodes, and
    those of them that count.
    """

    folders: Folders
    inodes: list[int]
    counted: list[int]
    key: int


class Pending:
    """A replay of a trace up to `point`, with what is durable and what is pending there."""

    def __init__(self, initial: Image, ignored: str = "") -> None:
        self.point = 0
        # Files of this name tell no disks apart.
        self._ignored = ignored
        self.units: list[Unit] = []
        self.marks: list[Mark] = []
        self._promises = 0
        self._folders: Folders = {number: dict(names) for number, names in initial.folders.items()}
        self._contents: dict[int, Content] = dict(initial.contents)
        self._of_inode: dict[int, list[Unit]] = {}
        self._of_names: list[Unit] = []
        # What a choice leaves of one file, and of the names; many choices share it.
        self._content_memo: dict[tuple[int, int, TearAt | None], tuple[Content, bytes]] = {}
        self._names_memo: dict[int, _Names] = {}
        self._keys_memo: dict[int, tuple[int, list[tuple[int, int]]]] = {}
        self._masks: dict[int, int] = {}
        self._names_mask = 0

    def apply(self, operation: Operation) -> None:
        """Go on by one operation."""
        index = self.point
        self.point += 1
        match operation:
            case Mark():
                self.marks.append(operation)
                self._promises += operation.promise
            case Sync():
                self._sync(operation)
            case SyncFolder():
                self._sync_folder(operation.inode)
            case NameChange():
                self._change_names(operation, index)
            case _:
                self._add(Unit(operation, index), self._of_inode.setdefault(operation.inode, []))

    def key(self, kept: int, torn: TearAt | None) -> int:
        """A hash of the disk that a choice leaves, with what had been promised by then.

        It is made of one for each file, so that only files with something pending are looked at.
        """
        memo = kept & self._names_mask
        found = self._keys_memo.get(memo)
        if found is None:
            found = self._keys_memo[memo] = self._key_of_settled(kept)
        key, varying = found
        for place, inode in varying:
            key ^= _placed(place, self._content(inode, kept, torn)[1])
        return key ^ self._promises

    def _key_of_settled(self, kept: int) -> tuple[int, list[tuple[int, int]]]:
        """The key without the files of which something is pending, and those with their places."""
        names = self._names(kept)
        key = names.key << 32  # below which are the promises
        varying = []
        for place, inode in enumerate(names.counted):
            if self._masks.get(inode):
                varying.append((place, inode))
            else:
                key ^= _placed(place, self._content(inode, kept, None)[1])
        return key, varying

    def image(self, kept: int, torn: TearAt | None) -> Image:
        """The disk that a choice leaves."""
        names = self._names(kept)
        contents = {inode: self._content(inode, kept, torn)[0] for inode in names.inodes}
        return Image(names.folders, contents)

    def _add(self, unit: Unit, to: list[Unit]) -> None:
        unit.bit = len(self.units)
        self.units.append(unit)
        to.append(unit)
        # Older choices have the new bit unset, so what was remembered of them stays right: only
        # the masks grow.
        if to is self._of_names:
            self._names_mask |= 1 << unit.bit
        else:
            inode = _inode_of(unit)
            if inode not in self._masks:
                self._keys_memo.clear()
            self._masks[inode] = self._masks.get(inode, 0) | 1 << unit.bit

    def _sync(self, operation: Sync) -> None:
        inode = operation.inode
        units = self._of_inode.get(inode, [])
        if operation.failed:
            for unit in units:
                unit.doubtful = not unit.fixed
            return
        for unit in units:
            unit.fixed = unit.fixed or not unit.doubtful
        if all(unit.fixed for unit in units):
            self._contents[inode] = _applied(self._contents.get(inode, EMPTY), units, None)
            units.clear()
        self._settle()

    def _sync_folder(self, folder: int) -> None:
        for unit in self._of_names:
            if folder in _folders_of(unit):
                unit.fixed = True
                if unit.needs is not None:
                    unit.needs.fixed = True
        for unit in self._of_names:
            if unit.fixed:
                _change(self._folders, unit)
        self._of_names = [unit for unit in self._of_names if not unit.fixed]
        # A file that no name leads to, nor ever will, has no more say.
        named = {number for names in self._folders.values() for number in names.values()}
        named |= {unit.put.inode for unit in self._of_names if unit.put is not None}
        for inode in self._of_inode.keys() - named:
            for unit in self._of_inode.pop(inode):
                unit.fixed = True
        self._settle()

    def _change_names(self, change: NameChange, index: int) -> None:
        if change.makes == "folder" and change.put is not None:
            self._folders[change.put.inode] = {}
        put, removed = change.put, change.removed
        if put is None or removed is None or put.folder == removed.folder:
            self._add(Unit(change, index, put=put, removed=removed), self._of_names)
            return
        arrival = Unit(change, index, put=put)
        self._add(arrival, self._of_names)
        self._add(Unit(change, index, removed=removed, needs=arrival), self._of_names)

    def _settle(self) -> None:
        """Number the units anew when some became durable."""
        units = [unit for unit in self.units if not unit.fixed]
        if len(units) == len(self.units):
            return
        self.units = units
        self._masks.clear()
        self._names_mask = 0
        for bit, unit in enumerate(units):
            unit.bit = bit
            if isinstance(unit.operation, NameChange):
                self._names_mask |= 1 << bit
            else:
                inode = _inode_of(unit)
                self._masks[inode] = self._masks.get(inode, 0) | 1 << bit
        self._content_memo.clear()
        self._names_memo.clear()
        self._keys_memo.clear()

    def _content(self, inode: int, kept: int, torn: TearAt | None) -> tuple[Content, bytes]:
        mask = self._masks.get(inode, 0)
        if torn is not None and not mask >> torn.unit & 1:
            torn = None
        memo = (inode, kept & mask, torn)
        found = self._content_memo.get(memo)
        if found is None:
            units = [u for u in self._of_inode.get(inode, ()) if u.fixed or kept >> u.bit & 1]
            content = _applied(self._contents.get(inode, EMPTY), units, torn)
            size = content.size.to_bytes(8, "little")
            found = content, xxhash.xxh3_128_digest(size + content.data)
            if len(self._content_memo) >= _MEMO_MAX:
                self._content_memo.clear()
            self._content_memo[memo] = found
        return found

    def _names(self, kept: int) -> _Names:
        memo = kept & self._names_mask
        found = self._names_memo.get(memo)
        if found is None:
            folders = {number: dict(names) for number, names in self._folders.items()}
            for unit in self._of_names:
                if kept >> unit.bit & 1 and (unit.needs is None or kept >> unit.needs.bit & 1):
                    _change(folders, unit)
            found = self._names_memo[memo] = _in_reach(folders, self._ignored)
        return found


def _inode_of(unit: Unit) -> int:
    assert not isinstance(unit.operation, NameChange)
    return unit.operation.inode


def _folders_of(unit: Unit) -> set[int]:
    return {entry.folder for entry in (unit.put, unit.removed) if entry is not None}


def _change(folders: Folders, unit: Unit) -> None:
    removed, put = unit.removed, unit.put
    # A lost operation in between may have left the name to another file, which this one then does
    # not concern.
    if removed is not None and folders[removed.folder].get(removed.name) == removed.inode:
        del folders[removed.folder][removed.name]
    if put is not None:
        folders[put.folder][put.name] = put.inode


def _in_reach(folders: Folders, ignored: str) -> _Names:
    """The folders and files that the root leads to, in the order of their paths."""
    reached: Folders = {}
    inodes: list[int] = []
    counted: list[int] = []
    key = xxhash.xxh3_128()
    todo = [ROOT]
    while todo:
        folder = todo.pop()
        names = reached[folder] = folders[folder]
        for name in sorted(names):
            inode = names[name]
            is_folder = inode in folders
            if not is_folder:
                inodes.append(inode)
                if name == ignored:
                    continue
                counted.append(inode)
            key.update((name + ("/" if is_folder else "\0")).encode())
            if is_folder:
                todo.append(inode)
        key.update(b"\1")
    # Two names of one file: it is the same disk only if they are the same file again.
    if len(set(counted)) != len(counted):
        key.update(repr([counted.index(inode) for inode in counted]).encode())
    return _Names(reached, inodes, counted, key.intdigest())


def _placed(place: int, digest: bytes) -> int:
    """A hash of a file's content at its place among the names."""
    return xxhash.xxh3_128_intdigest(digest, seed=place) << 32


def _applied(content: Content, units: list[Unit], torn: TearAt | None) -> Content:
    """A content after the given operations; trailing zeroes are not stored."""
    if not units:
        return content
    data = bytearray(content.data)
    size = content.size
    for unit in units:
        operation = unit.operation
        if isinstance(operation, Write):
            end = operation.offset + len(operation.data)
            writes = [(operation.offset, operation.data)]
            if torn is not None and torn.unit == unit.bit and not unit.fixed:
                writes = torn.tear.writes(operation)
                if not torn.tear.grows:
                    end = torn.tear.end
            size = max(size, end)
            for offset, part in writes:
                if offset > len(data):
                    data.extend(bytes(offset - len(data)))
                data[offset : offset + len(part)] = part
        elif isinstance(operation, Truncate):
            del data[operation.length :]
            size = operation.length
        elif isinstance(operation, Allocate):
            size = max(size, operation.length)
    return Content(bytes(data).rstrip(b"\0"), size)
