"""Records that make no sense under good checksums: whatever they say, opening and using the queue
gives a typed error about stored bytes, or works; it never fails in another way.
"""

from __future__ import annotations

import json
import os
import random
import struct
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest

from tests.faults.checker import MAIN
from tests.faults.driven_queue import end_of, open_queue
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.test_queue_bit_flips import Store, small_store
from tests.faults.trace import Content, Image
from tidemill.errors import Corrupt, UnknownFormat
from tidemill.files.record import ENVELOPE_BYTES, Kind, pack_envelope, payload_digest, split_place
from tidemill.files.scan import Found

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


@pytest.mark.slow
@pytest.mark.parametrize("closed", [False, True], ids=["crashed", "closed"])
def test_records_that_make_no_sense_under_good_checksums_give_typed_errors(
    closed: bool, tally: Tally
) -> None:
    chance = random.Random(4711)
    outcomes: Counter[str] = Counter()
    for _ in range(STORES):
        image, words = _resealed(small_store(closed=closed), chance)
        for mode in ("abort", "continue"):
            try:
                queue = open_queue(MemoryFileSystem(image), on_corruption=mode)
                for fork in (MAIN, *queue.forks()):
                    # A count that is false under a good seal is believed, so it is not held
                    # against the items.
                    assert len(end_of(queue, fork)) >= 0
                    end_of(queue, fork).peek(-1).rows()
                queue.push([(5, b"x")])
                queue.pop(2)
                queue.close()
                outcomes["works"] += 1
            except (Corrupt, UnknownFormat) as error:
                outcomes[type(error).__name__] += 1
            except BaseException as failure:
                raise AssertionError(f"{mode}: {words}") from failure
    tally("records under false seals", STORES)
    assert outcomes["works"] > STORES // 10
    assert outcomes["Corrupt"] > STORES // 10
