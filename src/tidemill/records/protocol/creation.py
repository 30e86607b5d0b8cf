"""Making a ring, and opening one that is there.

A ring is made by one write: that of its metadata record, if there is none. Buffer records are made
as entries need them. Whoever dies while making a ring has thus made it, or has not.

Buffers in another store are found by a record there that bears the ring's random bytes, written
before the metadata: a ring that is there has its buffers, and is not used with the wrong ones. Its
maker may die in between, and leave a few bytes that nobody looks at.
"""

from __future__ import annotations

from tidemill.errors import (
    Corrupt,
    GeometryMismatch,
    InvalidInput,
    NotAQueue,
    OutcomeUnknown,
    UnknownFormat,
)
from tidemill.records.protocol.geometry import Geometry
from tidemill.records.protocol.lock import Call
from tidemill.records.protocol.metadata import (
    BUFFERS_APART,
    METADATA_BYTES_MAX,
    Group,
    Metadata,
    decode_metadata,
)
from tidemill.records.protocol.requests import (
    CreateMetadata,
    GetBuffers,
    GetMetadata,
    Steps,
    WriteBuffers,
)
from tidemill.records.store import Write

FIRST_GROUP = 0  # the id of the group that a ring is made with; others are tokens, from 1 on
FIRST_GROUP_NAME = "default"


def metadata_name(name: str) -> str:
    """The name of the metadata record of a ring."""
    return f"{name}:ring"


def home_name(name: str, ring: bytes) -> str:
    """The name of the record that shows that buffers belong to a ring."""
    return f"{name}:{ring.hex()}:home"


def open_ring(name: str, buffers: str | None) -> Steps[Metadata | None]:
    """The ring of this name; None if there is none. `buffers` is its name in another store."""
    found = yield from _find(name, buffers)
    while found is not None and buffers is not None:
        homes = yield GetBuffers((home_name(buffers, found.ring),))
        if homes[0] is not None:
            break
        # It may have been removed since, and another one made in its place.
        homeless, found = found.ring, (yield from _find(name, buffers))
        if found is not None and found.ring == homeless:
            raise GeometryMismatch(
                f"ring {name!r} has its buffers in another store than the one given as `buffers`, "
                "or that one has lost them: name the right one, or remove the ring with "
                "tm.Ring.remove_at or `tidemill ring remove`"
            )
    return found


def find_ring(name: str) -> Steps[Metadata | None]:
    """What the metadata record says, wherever the buffers are; None if there is no ring."""
    record = yield GetMetadata()
    if record is None:
        return None
    try:
        return decode_metadata(record.data)
    except Corrupt as error:
        raise Corrupt(f"ring {name!r}: {error}") from error
    except UnknownFormat as error:
        raise UnknownFormat(f"ring {name!r}: {error}; a newer Tidemill made it") from error


def has_buffers(name: str, found: Metadata, buffers: str | None) -> bool:
    """Whether the buffers are where the caller says; not if he names no store and they are in one
    of their own. To name one for a ring that has none is a mistake.
    """
    is_apart = bool(found.flags & BUFFERS_APART)
    if buffers is not None and not is_apart:
        raise GeometryMismatch(
            f"ring {name!r} has its buffers in the same store: open it without `buffers`"
        )
    return is_apart == (buffers is not None)


def _find(name: str, buffers: str | None) -> Steps[Metadata | None]:
    """What the metadata record says, if the buffers are where it says."""
    found = yield from find_ring(name)
    if found is not None and not has_buffers(name, found, buffers):
        raise GeometryMismatch(
            f"ring {name!r} has its buffers in another store: name that as `buffers`"
        )
    return found


def make_ring(
    name: str, ring: bytes, shape: Geometry, buffers: str | None, call: Call
) -> Steps[Metadata]:
    """Make a ring; if somebody else does at the same time, it is theirs that counts.

    The call's patience bounds how often it is tried.
    """
    made = Metadata(
        ring=ring,
        flags=0 if buffers is None else BUFFERS_APART,
        geometry=shape,
        fence=0,
        tail=0,
        overwritten=0,
        grant=None,
        groups=(Group(FIRST_GROUP, FIRST_GROUP_NAME, 0),),
        ended=b"",
    )
    while True:
        try:
            if buffers is not None:
                yield WriteBuffers((Write(home_name(buffers, ring), ring, None),))
            yield CreateMetadata(made.encode())
        except OutcomeUnknown:
            pass  # whichever it was, looking tells
        found = yield from open_ring(name, buffers)
        if found is not None:
            return found
        if not (yield from call.pause()):
            raise OutcomeUnknown(
                f"whether ring {name!r} was made is not known: writes are not answered, or others "
                "remove it; try again"
            )


def check_room(place: str, record_bytes_max: int) -> None:
    """Refuse to make a ring where its metadata would not fit some day."""
    if record_bytes_max < METADATA_BYTES_MAX:
        raise InvalidInput(
            f"{place} takes records of {record_bytes_max} bytes, and a ring needs "
            f"{METADATA_BYTES_MAX}: raise what the server takes (max_allowed_packet of MySQL and "
            "MariaDB)"
        )


def check_geometry(name: str, found: Geometry, capacity: int | None, slots: int | None) -> None:
    """Refuse to open a ring as something that it is not."""
    wrong = None
    if capacity is not None and capacity != found.capacity:
        wrong = f"a capacity of {found.capacity}, not of {capacity}"
    elif slots is not None and min(slots, found.capacity) != found.slots:
        wrong = f"{found.slots} slots to a record, not {slots}"
    if wrong is not None:
        raise GeometryMismatch(
            f"ring {name!r} was made with {wrong}; open it as it is, or remove it and make it again"
        )


def missing(name: str, place: str) -> NotAQueue:
    """There is no such ring, and nobody said how large it should be."""
    return NotAQueue(f"there is no ring {name!r} at {place}: give a capacity to make it")
