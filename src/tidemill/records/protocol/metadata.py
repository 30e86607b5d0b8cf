"""The metadata record: all that a ring is, but for its entries.

    0   magic "TMRM" · version u16 · flags u16 · ring 8 bytes
    16  capacity u64 · slots u32 · groups u16 · outcomes u16 · record_bytes_max u64
    40  fence i64 · tail i64 · overwritten i64
    64  the grant: token i64 (0: it is free) · nonce 16 bytes · operation 16 bytes · lock_ms u64
    112 groups: id i64 · head i64 · length u8 · name
        outcomes, newest last: operation 16 bytes · token i64 · offset i64 · count u32 · what u32
        xxh3 of all of it u64

The record is written whole, on the condition that it has the generation that was read. While the
lock is held only two writes are possible: the holder's commit, and a grant that breaks the lock.
The age of the record is thus the age of the grant.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from tidemill.errors import Corrupt, InvalidName, UnknownFormat
from tidemill.limits import (
    NAME_LENGTH_MAX,
    RING_CAPACITY_MAX,
    RING_GROUPS_MAX,
    RING_LOCK_MS_MAX,
    RING_OUTCOMES_KEPT,
    RING_SLOTS_PER_RECORD_MAX,
)
from tidemill.names import check_name
from tidemill.records.protocol.geometry import Geometry

MAGIC = b"TMRM"
VERSION = 1
BUFFERS_APART = 1  # a flag: the buffers are in another store

_HEADER = struct.Struct("<4sHH8sQIHHQqqqq16s16sQ")
_GROUP = struct.Struct("<qqB")
_OUTCOME = struct.Struct("<16sqqII")
_CHECK = struct.Struct("<Q")

# The largest record that there can be: a store that takes less would lock a ring for good, some
# operations or groups after it was made.
METADATA_BYTES_MAX = (
    _HEADER.size
    + RING_GROUPS_MAX * (_GROUP.size + NAME_LENGTH_MAX)
    + RING_OUTCOMES_KEPT * _OUTCOME.size
    + _CHECK.size
)


class What(IntEnum):
    """How an operation ended."""

    ABORTED = 0
    ENQUEUED = 1
    DEQUEUED = 2
    CHANGED = 3  # a group was made or removed


class Ended(NamedTuple):
    """An operation that ended."""

    operation: bytes
    token: int
    offset: int
    entries: int
    what: int


class Group(NamedTuple):
    """A consuming end: its own head, and an id that no other group of the ring ever had."""

    id: int
    name: str
    head: int


class Grant(NamedTuple):
    """The right to change the ring, until somebody breaks it.

    The token fences; the nonce tells a client whose answer was lost that the grant is its own. What
    the caller calls the operation tells neither: nobody can keep two callers from using one id.
    """

    token: int
    nonce: bytes
    operation: bytes
    lock_ms: int


@dataclass(frozen=True, slots=True)
class Metadata:
    """The state of a ring."""

    ring: bytes
    flags: int
    geometry: Geometry
    fence: int
    tail: int
    overwritten: int
    grant: Grant | None
    groups: tuple[Group, ...]
    ended: bytes  # encoded, because most writes only add one

    @property
    def head(self) -> int:
        """The oldest entry that some group has before it; `tail` if there is none."""
        return min([group.head for group in self.groups])

    def group(self, id: int) -> Group | None:
        """The group with this id, unless it was removed."""
        for group in self.groups:
            if group.id == id:
                return group
        return None

    def granted(self, grant: Grant) -> Metadata:
        """The same with the lock given to somebody; a lock that was held is broken by it."""
        return replace(self, fence=grant.token, grant=grant, ended=self._ended_by_breaking())

    def released(self) -> Metadata:
        """The same with a free lock, and the operation that held it aborted."""
        return replace(self, grant=None, ended=self._ended_by_breaking())

    def enqueued(self, count: int) -> Metadata:
        """The holder's `count` entries become readable; the oldest go where there is no room."""
        tail = self.tail + count
        least = tail - self.geometry.capacity
        groups = self.groups
        if self.head < least:
            groups = tuple(group._replace(head=max(group.head, least)) for group in groups)
        return replace(
            self,
            tail=tail,
            overwritten=self.overwritten + max(0, least - self.head),
            grant=None,
            groups=groups,
            ended=self._with_end(self.tail, count, What.ENQUEUED),
        )

    def dequeued(self, group: Group, count: int) -> Metadata:
        """The holder's group has `count` entries fewer before it."""
        moved = group._replace(head=group.head + count)
        return replace(
            self,
            grant=None,
            groups=tuple(moved if one.id == group.id else one for one in self.groups),
            ended=self._with_end(group.head, count, What.DEQUEUED),
        )

    def regrouped(self, groups: tuple[Group, ...]) -> Metadata:
        """The holder's change of groups."""
        return replace(
            self, grant=None, groups=groups, ended=self._with_end(self.tail, 0, What.CHANGED)
        )

    def end_of_token(self, token: int) -> Ended | None:
        """How the operation with this token ended, if that is still known."""
        for found in reversed(list(_OUTCOME.iter_unpack(self.ended))):
            if found[1] == token:
                return Ended(*found)
        return None

    def end_of_operation(self, operation: bytes) -> Ended | None:
        """How the last operation of this id ended, if that is still known."""
        for found in reversed(list(_OUTCOME.iter_unpack(self.ended))):
            if found[0] == operation:
                return Ended(*found)
        return None

    def encode(self) -> bytes:
        """The bytes of the record."""
        shape = self.geometry
        grant = self.grant or Grant(0, b"", b"", 0)
        header = _HEADER.pack(
            MAGIC,
            VERSION,
            self.flags,
            self.ring,
            shape.capacity,
            shape.slots,
            len(self.groups),
            len(self.ended) // _OUTCOME.size,
            shape.record_bytes_max,
            self.fence,
            self.tail,
            self.overwritten,
            *grant,
        )
        parts = [header]
        for group in self.groups:
            name = group.name.encode()
            parts.append(_GROUP.pack(group.id, group.head, len(name)) + name)
        parts.append(self.ended)
        body = b"".join(parts)
        return body + _CHECK.pack(xxh3_64_intdigest(body))

    def _ended_by_breaking(self) -> bytes:
        return self.ended if self.grant is None else self._with_end(0, 0, What.ABORTED)

    def _with_end(self, offset: int, count: int, what: What) -> bytes:
        if self.grant is None:
            return self.ended
        kept = self.ended[-(RING_OUTCOMES_KEPT - 1) * _OUTCOME.size :]
        return kept + _OUTCOME.pack(self.grant.operation, self.grant.token, offset, count, what)


def decode_metadata(data: bytes) -> Metadata:
    """The state in a metadata record; `Corrupt` or `UnknownFormat` if there is none.

    >>> decode_metadata(b"something else")
    Traceback (most recent call last):
    tidemill.errors.Corrupt: the metadata record does not look like that of a ring
    """
    if len(data) < _HEADER.size + _CHECK.size or data[:4] != MAGIC:
        raise Corrupt("the metadata record does not look like that of a ring")
    body = data[: -_CHECK.size]
    if _CHECK.unpack_from(data, len(body))[0] != xxh3_64_intdigest(body):
        raise Corrupt("the checksum of the metadata record is wrong")
    (
        _,
        version,
        flags,
        ring,
        capacity,
        slots,
        group_count,
        ended_count,
        record_bytes_max,
        fence,
        tail,
        overwritten,
        *grant,
    ) = _HEADER.unpack_from(body)
    if version != VERSION:
        raise UnknownFormat(f"the metadata record has version {version}, and {VERSION} is known")
    ended_bytes = ended_count * _OUTCOME.size
    groups = _decode_groups(body, group_count, len(body) - ended_bytes)
    found = Metadata(
        ring=ring,
        flags=flags,
        geometry=Geometry(capacity, slots, record_bytes_max),
        fence=fence,
        tail=tail,
        overwritten=overwritten,
        grant=Grant(*grant) if grant[0] else None,
        groups=groups,
        ended=body[len(body) - ended_bytes :],
    )
    _check(found)
    return found


def _decode_groups(body: bytes, count: int, end: int) -> tuple[Group, ...]:
    place = _HEADER.size
    groups = []
    for _ in range(count):
        if place + _GROUP.size > end:
            raise Corrupt("the groups of the metadata record do not fit into it")
        id, head, length = _GROUP.unpack_from(body, place)
        place += _GROUP.size
        name = body[place : place + length]
        place += length
        try:
            groups.append(Group(id, check_name(name.decode("ascii"), what="group"), head))
        except (UnicodeDecodeError, InvalidName) as error:
            raise Corrupt(f"the metadata record has a group {name!r}") from error
    if place != end:
        raise Corrupt("the groups and outcomes of the metadata record do not fill it")
    return tuple(groups)


def _check(found: Metadata) -> None:
    """Refuse what no ring can be, though its checksum is right."""
    shape = found.geometry
    problem = None
    if not 1 <= shape.capacity <= RING_CAPACITY_MAX:
        problem = f"a capacity of {shape.capacity}"
    elif not 1 <= shape.slots <= min(shape.capacity, RING_SLOTS_PER_RECORD_MAX):
        problem = f"{shape.slots} slots to a record"
    elif not found.groups:
        problem = "no groups"
    elif not 0 <= found.head <= found.tail <= found.head + shape.capacity:
        problem = f"a head of {found.head} and a tail of {found.tail}"
    elif max(group.head for group in found.groups) > found.tail:
        problem = "a group ahead of the tail"
    elif found.fence < 0 or (found.grant is not None and found.grant.token != found.fence):
        problem = f"a fence of {found.fence} that does not fit its grant"
    elif found.grant is not None and not 1 <= found.grant.lock_ms <= RING_LOCK_MS_MAX:
        # Whoever believed it would wait as long.
        problem = f"a lock for {found.grant.lock_ms} ms"
    if problem is not None:
        raise Corrupt(f"the metadata record has {problem}")
