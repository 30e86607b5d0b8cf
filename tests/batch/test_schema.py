"""Schemas: what is accepted, how it is written down, how it may grow."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.batch.samples import TYPED, typed_rows
from tidemill.batch import (
    DEFAULT,
    SchemaVersions,
    body_schema,
    check_payload_schema,
    fingerprint,
    project,
    to_rows,
)
from tidemill.batch.schema import describe, from_description
from tidemill.errors import Corrupt, SchemaMismatch
from tidemill.limits import SCHEMA_BYTES_MAX, SCHEMA_VERSIONS_MAX

ID = pa.field("id", pa.int64(), nullable=False)
CITY = pa.field("city", pa.utf8())

leaves = st.sampled_from(
    [
        *[pa.bool_(), pa.int8(), pa.int64(), pa.float32(), pa.utf8(), pa.binary(), pa.date32()],
        *[pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"), pa.decimal128(9, 3)],
    ]
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
kinds = st.recursive(
    leaves,
    lambda inner: (
        inner.map(pa.list_)
        | st.tuples(leaves, inner).map(lambda pair: pa.map_(*pair))
        | st.dictionaries(names, inner, min_size=1, max_size=3).map(
            lambda d: pa.struct(list(d.items()))
        )
    ),
    max_leaves=5,
)
schemas = st.dictionaries(
    names.filter(lambda name: name not in ("seq", "key", "time")),
    st.tuples(kinds, st.booleans()),
    min_size=1,
    max_size=5,
).map(lambda d: pa.schema([pa.field(name, kind, null) for name, (kind, null) in d.items()]))


@given(schemas)
def test_an_accepted_schema_survives_being_written_down(schema: pa.Schema) -> None:
    normal = check_payload_schema(schema)
    assert normal.equals(schema)
    found = from_description(json.loads(json.dumps(describe(schema))))
    assert found.equals(schema)
    assert fingerprint(found) == fingerprint(schema)


@given(schemas, schemas)
def test_schemas_have_the_same_fingerprint_only_if_they_are_the_same(
    one: pa.Schema, other: pa.Schema
) -> None:
    assert (fingerprint(one) == fingerprint(other)) == one.equals(other)


def test_fingerprints_never_change() -> None:
    # These numbers are in the headers of stored frames.
    assert fingerprint(DEFAULT) == 0x5BE63501F99A9608
    assert fingerprint(TYPED) == 0xAEA28A16941E4242


def test_metadata_is_dropped_and_nested_nullability_with_it() -> None:
    nested = pa.list_(pa.field("element", pa.int64(), nullable=False, metadata={"a": "b"}))
    given_ = pa.schema([pa.field("n", nested, metadata={"x": "y"})], metadata={"pandas": "{}"})
    normal = check_payload_schema(given_)
    assert normal.equals(pa.schema([("n", pa.list_(pa.int64()))]), check_metadata=True)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (pa.schema([]), "at least one"),
        (pa.schema([("a", pa.int8()), ("a", pa.int8())]), "'a' is there more than once"),
        (pa.schema([("seq", pa.int64())]), "'seq' has a reserved name"),
        (pa.schema([("key", pa.int64())]), "'key' has a reserved name"),
        (pa.schema([("", pa.int64())]), "empty name"),
        (pa.schema([(f"c{n}", pa.int64()) for n in range(2001)]), "2000 columns"),
        (pa.schema([("x" * SCHEMA_BYTES_MAX, pa.int64())]), "bytes"),
        ("value: binary", "pyarrow.Schema"),
    ],
)
def test_a_schema_that_breaks_a_rule_is_refused(schema: pa.Schema, why: str) -> None:
    with pytest.raises(SchemaMismatch, match=why):
        check_payload_schema(schema)


@pytest.mark.parametrize(
    "data",
    [
        b"{}",
        b"[]",
        b"[1]",
        b'[{"name":"a","type":"int64"}]',
        b'[{"name":"a","type":"int64","nullable":1}]',
        b'[{"name":"a","type":"uint8","nullable":true}]',
        b'[{"name":"key","type":"int64","nullable":true}]',
        b'[{"name":"a","type":"decimal(99, 2)","nullable":true}]',
        b'[{"name":"a","type":{"list":"int64","map":1},"nullable":true}]',
        b'[{"name":"a","type":{"struct":[]},"nullable":true}]',
        b'[{"name":"a","type":{"struct":[["b"]]},"nullable":true}]',
        b'[{"name":"\\ud800","type":"int64","nullable":true}]',
        b'[{"name":"a","type":' + b'{"list":' * 33 + b'"int8"' + b"}" * 33 + b',"nullable":true}]',
    ],
    ids=lambda data: data[:60],
)
def test_a_stored_schema_that_we_did_not_write_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt):
        from_description(json.loads(data))


def test_versions_grow_by_nullable_columns_at_the_end() -> None:
    first = SchemaVersions([pa.schema([ID])])
    second = first.evolve(pa.schema([CITY, ID]))
    assert [version.names for version in second] == [["id"], ["id", "city"]]
    assert second.newest.names == ["id", "city"]
    assert second.newest_fingerprint == fingerprint(second.newest)
    assert len(first) == 1, "the old set does not change"
    assert second.evolve(pa.schema([ID, pa.field("city", pa.large_utf8())])) is second


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (pa.schema([CITY]), "'id' is missing"),
        (pa.schema([pa.field("id", pa.int32(), nullable=False), CITY]), "'id' is int64"),
        (pa.schema([pa.field("id", pa.int64()), CITY]), "'id' cannot change"),
        (pa.schema([ID, pa.field("city", pa.utf8(), nullable=False)]), "'city' is new"),
        (pa.schema([ID, pa.field("time", pa.utf8())]), "'time' has a reserved"),
    ],
)
def test_any_other_change_is_refused_by_column(schema: pa.Schema, why: str) -> None:
    with pytest.raises(SchemaMismatch, match=why):
        SchemaVersions([pa.schema([ID])]).evolve(schema)


def test_versions_are_found_by_fingerprint() -> None:
    versions = SchemaVersions([pa.schema([ID])]).evolve(pa.schema([ID, CITY]))
    for version in versions:
        mark = fingerprint(version)
        assert mark in versions
        assert versions.by_fingerprint(mark).equals(version)
        for carried in (False, True):
            body = versions.body(mark, carried=carried)
            assert body.equals(body_schema(version, carried=carried))
            assert body is versions.body(mark, carried=carried)
    for find in (versions.by_fingerprint, lambda mark: versions.body(mark, carried=False)):
        with pytest.raises(Corrupt, match="0x00000000000004d2"):
            find(1234)


def test_versions_survive_being_written_down() -> None:
    versions = SchemaVersions([TYPED]).evolve(pa.schema([*TYPED, CITY]))
    found = SchemaVersions.from_json(json.loads(json.dumps(versions.to_json())))
    assert found == versions
    assert hash(found) == hash(versions)
    assert repr(found) == repr(versions)


@pytest.mark.parametrize("data", [None, [], {}, [[]], "x", [None], [1] * 2000])
def test_stored_versions_that_we_did_not_write_are_corrupt(data: object) -> None:
    with pytest.raises(Corrupt):
        SchemaVersions.from_json(data)


def test_stored_versions_that_do_not_follow_one_another_are_corrupt() -> None:
    one, other = (SchemaVersions([pa.schema([f])]).to_json()[0] for f in (ID, CITY))
    both = SchemaVersions([pa.schema([CITY, ID])]).to_json()[0]
    for data in ([one, other], [one, one], [one, [*reversed(both)], both], [other, both[::-1]]):
        with pytest.raises(Corrupt):
            SchemaVersions.from_json(data)


@pytest.mark.slow
def test_there_are_only_so_many_versions() -> None:
    fields = [pa.field(f"c{n}", pa.int8()) for n in range(SCHEMA_VERSIONS_MAX + 1)]
    with pytest.raises(SchemaMismatch, match="1000 schema versions"):
        SchemaVersions([pa.schema(fields[: n + 1]) for n in range(len(fields))])


def test_older_rows_are_read_through_the_newest_schema() -> None:
    rows = to_rows(typed_rows(6), schema=TYPED).payload
    newest = pa.schema([*TYPED, CITY, ("tree", pa.struct([("leaf", pa.list_(pa.int8()))]))])
    found = project(rows.slice(1, 4), newest)
    found.validate(full=True)
    assert found.schema.equals(newest)
    assert found.select(TYPED.names).equals(rows.slice(1, 4))
    assert found.column("city").null_count == found.column("tree").null_count == 4
    assert project(rows, TYPED) is rows
