"""Records and derived files that make no sense under good checksums: whatever they say, opening and
using the queue gives a typed error about stored bytes, or works; it never fails in another way.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import pytest
from xxhash import xxh3_64_intdigest

from tests.faults.checker import MAIN
from tests.faults.driven_queue import end_of, open_queue
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.test_queue_bit_flips import Store, small_store
from tests.faults.trace import Content, Image
from tidemill.errors import Corrupt, UnknownFormat
from tidemill.files.folder.folder_options import CorruptionMode
from tidemill.files.format import summary
from tidemill.files.format.frame_table import ENTRY
from tidemill.files.format.record import (
    ENVELOPE_BYTES,
    Kind,
    pack_envelope,
    payload_digest,
    split_place,
)
from tidemill.files.journal import head, spine
from tidemill.files.journal.scan import Found

Tally: TypeAlias = Callable[[str, int], None]

STORES = 20_000 if os.environ.get("TIDEMILL_SOAK") == "1" else 250
_NUMBERS = [0, 1, 2, 255, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
_VALUES = [None, -1, 2**70, 1.5, "x", "../x", "", [], {}, [1], [[1, 2]], {"1": 2}, True, *_NUMBERS]


def _inside(document: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of everything in a document."""
    keys = range(len(document)) if isinstance(document, list) else list(document)
    for key in keys:
        yield document, key
        if isinstance(document[key], list | dict):
            yield from _inside(document[key])


def _other_payload(found: Found, chance: random.Random) -> bytes:
    """The payload with one of its numbers or values replaced; no longer than it was."""
    payload = bytes(found.payload)
    if found.envelope.kind is Kind.CUT:
        at = chance.randrange(0, len(payload) - 7, 4)
        return payload[:at] + struct.pack("<Q", chance.choice(_NUMBERS)) + payload[at + 8 :]
    document = json.loads(payload)
    container, key = chance.choice(list(_inside(document)))
    container[key] = chance.choice(_VALUES)
    other = json.dumps(document, separators=(",", ":")).encode()
    room = found.envelope.total_bytes - ENVELOPE_BYTES
    return other.ljust(len(payload)) if len(other) <= room else payload[::-1]


def _resealed(store: Store, chance: random.Random) -> tuple[Image, str]:
    """The store with one record changed, and its copies likewise, all under good checksums."""
    path = chance.choice(sorted(store.records))
    records = store.records[path]
    changed = chance.choice(records)
    envelope = changed.envelope
    fields: list[Any] = [
        *(int(envelope.kind), envelope.commit, envelope.length, envelope.rows, envelope.place),
        *(envelope.synced, envelope.epoch, envelope.payload_check, envelope.audience),
    ]
    payload = bytes(changed.payload)
    if changed.header is None and chance.random() < 0.7:
        payload = _other_payload(changed, chance)
        fields[2], fields[7] = len(payload), payload_digest(payload)
    else:
        field, bits = chance.choice([(0, 4), (1, 1), (3, 32), (5, 64), (6, 64), (8, 32)])
        fields[field] = chance.choice(_NUMBERS) & (2**bits - 1)
    inode = store.image.files()[path]
    content = store.image.contents[inode]
    data = bytearray(content.data)
    for record in records:
        is_copy = record.envelope.kind is envelope.kind and record.payload == changed.payload
        if record is changed or (is_copy and changed.header is None):
            start = split_place(record.envelope.place)[1]
            fields[4] = record.envelope.place
            fields[1] = fields[1] if record is changed else record.envelope.commit
            sealed = pack_envelope(*fields)
            if changed.header is None:
                sealed = (sealed + payload).ljust(record.envelope.total_bytes, b"\0")
            data[start : start + len(sealed)] = sealed
    words = f"{envelope.kind.name} in {path}: {fields}, {payload[:200]!r}"
    return store.image.replaced(inode, Content(bytes(data).rstrip(b"\0"), content.size)), words


def _resealed_summary(data: bytes, chance: random.Random) -> bytes:
    """A summary with one number of its header or its tables replaced, and sealed again."""
    _, _, _, segment, end, buckets, _, _, _, epoch = summary.HEADER.unpack_from(data)
    tables_at = summary.HEADER_BYTES + buckets * summary.DIRECTORY.itemsize
    directory = np.frombuffer(data[summary.HEADER_BYTES : tables_at], summary.DIRECTORY).copy()
    entries = np.frombuffer(data[tables_at:], ENTRY).copy()
    table = chance.choice([None, directory, entries])
    if table is None:
        numbers = [segment, end, epoch]
        numbers[chance.randrange(3)] = chance.choice(_NUMBERS)
        segment, end, epoch = numbers
    else:
        column = table[chance.choice(table.dtype.names or ())]
        at = chance.randrange(len(column))
        bits = 8 * column.dtype.itemsize - (column.dtype.kind == "i")
        column[at] = chance.choice(_NUMBERS) & (2**bits - 1)
    return summary.pack_summary(segment, end, epoch, directory, entries)


def _resealed_fields(data: bytes, at: int, fields: struct.Struct, chance: random.Random) -> bytes:
    """Fields with eight of their bytes replaced, and the check behind them made anew."""
    found = bytearray(data[at : at + fields.size])
    place = chance.randrange(0, fields.size - 7, 4)
    found[place : place + 8] = struct.pack("<Q", chance.choice(_NUMBERS))
    check = struct.pack("<Q", xxh3_64_intdigest(bytes(found)))
    return data[:at] + bytes(found) + check + data[at + fields.size + 8 :]


def _resealed_derived(store: Store, chance: random.Random) -> tuple[Image, str]:
    """The store with one derived file changed, under good checksums."""
    files = store.image.files()
    derived = [path for path in files if path.endswith((".summary", ".spine", "/head"))]
    path = chance.choice(sorted(path for path in derived if store.image.contents[files[path]].size))
    data = store.image.contents[files[path]].whole()
    if path.endswith(".summary"):
        changed = _resealed_summary(data, chance)
    elif path.endswith(".spine"):
        at = chance.randrange(len(data) // spine.ENTRY_BYTES) * spine.ENTRY_BYTES
        changed = _resealed_fields(data, at, spine._FIELDS, chance)
    else:
        changed = _resealed_fields(data, 0, head._FIELDS, chance)
    content = Content(changed.rstrip(b"\0"), len(changed))
    return store.image.replaced(files[path], content), f"{path}: {changed.hex()}"


def _use_all(image: Image, mode: CorruptionMode) -> None:
    queue = open_queue(MemoryFileSystem(image), on_corruption=mode)
    for fork in (MAIN, *queue.forks()):
        # A count that is false under a good seal is believed, so it is not held against the items.
        assert len(end_of(queue, fork)) >= 0
        end_of(queue, fork).peek(-1).rows()
    queue.push([(5, b"x")])
    queue.pop(2)
    queue.close()


@pytest.mark.slow
@pytest.mark.parametrize("resealed", [_resealed, _resealed_derived], ids=["records", "derived"])
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_what_makes_no_sense_under_good_checksums_gives_typed_errors(
    closed: bool,
    resealed: Callable[[Store, random.Random], tuple[Image, str]],
    tally: Tally,
) -> None:
    chance = random.Random(4711)
    outcomes: Counter[str] = Counter()
    modes: tuple[CorruptionMode, ...] = ("abort", "continue")
    for _ in range(STORES):
        image, words = resealed(small_store(closed=closed), chance)
        for mode in modes:
            try:
                _use_all(image, mode)
                outcomes["works"] += 1
            except (Corrupt, UnknownFormat) as error:
                outcomes[type(error).__name__] += 1
            except BaseException as failure:
                raise AssertionError(f"{mode}: {words}") from failure
    tally("records and derived files under false seals", STORES)
    assert outcomes["works"] > STORES // 10
    # Of what is derived little is believed; the rest is made again.
    assert outcomes["Corrupt"] > (STORES // 10 if resealed is _resealed else 0)
