"""Bad content under good checksums: a typed error or a valid batch, never a crash.

A crash of Arrow would take the test run with it, which is what makes it visible.
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.samples import TYPED, decode, frame_of, typed_rows, vouched
from tidemill.batch import DEFAULT, Batch, body_schema, encode_body
from tidemill.batch.versions import SchemaVersions
from tidemill.errors import Corrupt, InvalidInput
from tidemill.limits import DECOMPRESSED_BYTES_MIN

SOAK = os.environ.get("TIDEMILL_SOAK") == "1"

# Numbers that break arithmetic: edges of the integer types, and the sizes of things.
EDGES = [0, 1, -1, 2, 7, 8, 64, 255, 2**26, 2**31 - 1, 2**31, -(2**31), 2**32 - 1]
EDGES += [2**40, 2**62, 2**63 - 1, -(2**63)]

Case = tuple[bytes, pa.Schema, int, int, bool]


def cases() -> Iterator[Case]:
    for data, schema in (([b"abc" * n for n in range(7)], DEFAULT), (typed_rows(9), TYPED)):
        for carried in (False, True):
            for code, codec in enumerate([None, "lz4", "zstd"]):
                frame, body = frame_of(data, schema, carried=carried, codec=codec)
                yield frame[128:], body, len(data), code, carried


CASES = list(cases())


def check(body: bytes, schema: pa.Schema, rows: int, code: int, carried: bool) -> bool:
    """Decode, and if that goes well use everything; whether it went well."""
    try:
        _, found = decode(vouched(body, rows=rows, codec=code, carried=carried), schema)
    except Corrupt:
        return False
    assert found.num_rows == rows
    batch = Batch(found) if carried else Batch(found, 1, 0)
    try:
        batch.rows()
    except InvalidInput:
        pass  # A date that is valid but beyond the year 9999.
    assert encode_body(found).rows == rows
    assert found.take(pa.array([rows - 1])).num_rows == 1
    return True


def mutated(body: bytes, random_: random.Random) -> bytes:
    """The body with a few bytes changed, most often in the metadata, where the lengths are."""
    data = bytearray(body)
    metadata_end = 8 + int.from_bytes(body[4:8], "little")
    for _ in range(random_.choice([1, 1, 1, 2, 3, 5])):
        place = random_.randrange(min(len(data), metadata_end if random_.random() < 0.6 else 2**31))
        match random_.randrange(7):
            case 0 | 1:
                data[place] ^= 1 << random_.randrange(8)
            case 2:
                data[place] = random_.randrange(256)
            case 3:
                place &= ~3
                data[place : place + 4] = struct.pack("<q", random_.choice(EDGES))[:4]
            case 4 | 5:
                place &= ~7
                data[place : place + 8] = struct.pack("<q", random_.choice(EDGES))
            case _:
                other = random_.randrange(len(data))
                data[place : place + 8] = data[other : other + 8]
    if random_.random() < 0.02:
        del data[random_.randrange(16, len(data)) :]
    return bytes(data)


def run(seed: int, times: int) -> tuple[int, int]:
    random_ = random.Random(seed)
    good = bad = 0
    for _ in range(times):
        body, schema, rows, code, carried = random_.choice(CASES)
        if random_.random() < 0.05:
            rows = random_.choice([1, rows + 1, 2**20, 2**26])
        if random_.random() < 0.05:
            code = random_.randrange(3)
        if check(mutated(body, random_), schema, rows, code, carried):
            good += 1
        else:
            bad += 1
    return good, bad


def test_the_bodies_that_are_mutated_are_sound() -> None:
    assert all(check(*case) for case in CASES)


@contextmanager
def little_is_asked_for() -> Iterator[None]:
    """Within it Arrow never asks for more memory than a body so small may become. What it asks for
    counts, whether it is used or not.
    """
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    pa.set_memory_pool(pool)
    try:
        yield
    finally:
        pa.set_memory_pool(before)
    assert 0 < pool.max_memory() <= DECOMPRESSED_BYTES_MIN


def test_mutated_bodies_under_good_checksums_never_crash() -> None:
    with little_is_asked_for():
        good, bad = run(seed=1, times=4_000)
    assert good > 50, "the mutations are too strong to say anything"
    assert bad > 2_000, "the mutations are too weak to say anything"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 102 if SOAK else 6))
def test_many_mutated_bodies_under_good_checksums_never_crash(seed: int) -> None:
    with little_is_asked_for():
        run(seed=seed, times=50_000 if SOAK else 10_000)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_cut_of_a_body_is_corrupt(case: Case) -> None:
    body, schema, rows, code, carried = case
    for end in range(0, len(body), 1 if len(body) < 1000 else 8):
        assert not check(body[:end], schema, rows, code, carried)


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_every_number_of_the_metadata_may_be_any_edge(case: Case) -> None:
    body, schema, rows, code, carried = case
    for place in range(0, 8 + int.from_bytes(body[4:8], "little"), 4):
        for edge in (-1, 2**31 - 1, 2**62):
            size = 8 if place % 8 == 0 and edge > 2**31 else 4
            data = body[:place] + struct.pack("<q", edge)[:size] + body[place + size :]
            check(data, schema, rows, code, carried)


@given(st.binary(max_size=600), st.sampled_from([DEFAULT, TYPED]), st.integers(0, 2), st.booleans())
def test_arbitrary_bytes_are_corrupt(
    data: bytes, payload: pa.Schema, code: int, carried: bool
) -> None:
    assert not check(data, body_schema(payload, carried=carried), 1, code, carried)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["int64"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["name", "type", "nullable", "list", "struct", "map"]),
            inner,
            max_size=4,
        )
    ),
)


@given(json_values)
def test_arbitrary_json_is_schema_versions_or_corrupt(data: object) -> None:
    try:
        versions = SchemaVersions.from_json(data)
    except Corrupt:
        return
    assert versions.to_json() == data
