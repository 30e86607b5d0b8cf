"""The schema versions of a queue: an ordered set that only grows, and only by nullable columns.

Every frame names its version by fingerprint; readers see all of them through the newest.

    version 1   id int64 │ city utf8
    version 2   id int64 │ city utf8 │ zip utf8?        rows of version 1 read as zip = null
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from tidemill.batch.frame import body_schema
from tidemill.batch.schema import check_payload_schema, describe, fingerprint, from_description
from tidemill.errors import Corrupt, SchemaMismatch
from tidemill.limits import SCHEMA_VERSIONS_MAX


class SchemaVersions:
    """An immutable list of payload schemas, oldest first.

    >>> versions = SchemaVersions([pa.schema([pa.field("id", pa.int64(), nullable=False)])])
    >>> wider = versions.evolve(pa.schema([*versions.newest, ("city", pa.utf8())]))
    >>> len(versions), len(wider), wider.newest.names
    (1, 2, ['id', 'city'])
    >>> wider.evolve(pa.schema([("id", pa.utf8()), ("city", pa.utf8())]))
    Traceback (most recent call last):
    tidemill.errors.SchemaMismatch: column 'id' is int64 and cannot become string: a new version \
may only add columns to these: id int64, city string; without a schema, they are taken as they are
    """

    __slots__ = ("_bodies", "_by_fingerprint", "_versions", "newest", "newest_fingerprint")

    newest: pa.Schema
    newest_fingerprint: int

    def __init__(self, versions: Iterable[pa.Schema]) -> None:
        """Each version must be an evolution of the one before."""
        kept: list[pa.Schema] = []
        for version in versions:
            normal = check_payload_schema(version)
            kept.append(_evolved(kept[-1], normal) if kept else normal)
        if not 1 <= len(kept) <= SCHEMA_VERSIONS_MAX:
            raise SchemaMismatch(
                f"a queue has 1 to {SCHEMA_VERSIONS_MAX} schema versions, not {len(kept)}"
            )
        self._versions = tuple(kept)
        marks = [fingerprint(version) for version in kept]
        self._by_fingerprint = dict(zip(marks, kept, strict=True))
        if len(self._by_fingerprint) != len(kept):
            raise SchemaMismatch("two schema versions of a queue are the same")
        # The same body schema object each time, because decoding knows schemas by identity.
        self._bodies = {
            (mark, carried): body_schema(version, carried=carried)
            for mark, version in self._by_fingerprint.items()
            for carried in (False, True)
        }
        self.newest = kept[-1]
        self.newest_fingerprint = marks[-1]

    def __len__(self) -> int:
        return len(self._versions)

    def __iter__(self) -> Iterator[pa.Schema]:
        return iter(self._versions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SchemaVersions) and self._versions == other._versions

    def __hash__(self) -> int:
        return hash(tuple(self._by_fingerprint))

    def __contains__(self, mark: object) -> bool:
        return mark in self._by_fingerprint

    def __repr__(self) -> str:
        return f"SchemaVersions({len(self)}, newest {self.newest.names})"

    @property
    def marks(self) -> tuple[int, ...]:
        """The fingerprints of all versions, oldest first."""
        return tuple(self._by_fingerprint)

    def by_fingerprint(self, mark: int) -> pa.Schema:
        """The payload schema with this fingerprint; a frame that names another is `Corrupt`."""
        schema = self._by_fingerprint.get(mark)
        if schema is None:
            raise Corrupt(f"a frame names the schema {mark:#018x}, which the queue does not have")
        return schema

    def body(self, mark: int, carried: bool) -> pa.Schema:
        """The schema of the bodies of frames with this fingerprint, always the same object."""
        schema = self._bodies.get((mark, carried))
        if schema is None:
            raise Corrupt(f"a frame names the schema {mark:#018x}, which the queue does not have")
        return schema

    def evolve(self, schema: pa.Schema) -> SchemaVersions:
        """The versions with the columns that `schema` adds; `self` if it adds none."""
        given = check_payload_schema(schema)
        try:
            evolved = _evolved(self.newest, given)
        except SchemaMismatch as refusal:
            columns = ", ".join(f"{field.name} {field.type}" for field in self.newest)
            raise SchemaMismatch(
                f"{refusal}: a new version may only add columns to these: {columns}; without a "
                "schema, they are taken as they are"
            ) from None
        if evolved.equals(self.newest):
            return self
        return SchemaVersions([*self._versions, evolved])

    def to_json(self) -> list[list[dict[str, Any]]]:
        """The versions as plain data for JSON."""
        return [describe(version) for version in self._versions]

    @classmethod
    def from_json(cls, data: object) -> SchemaVersions:
        """What `to_json` gave; anything else is `Corrupt`.

        >>> versions = SchemaVersions([pa.schema([("id", pa.int64())])])
        >>> SchemaVersions.from_json(versions.to_json()) == versions
        True
        """
        if not isinstance(data, list) or len(data) > SCHEMA_VERSIONS_MAX:
            raise Corrupt("the stored schema versions are no list, or too long a one")
        versions = [from_description(description) for description in data]
        try:
            found = cls(versions)
        except SchemaMismatch as cause:
            raise Corrupt(
                f"the stored schema versions do not follow one another: {cause}"
            ) from cause
        if found._versions != tuple(versions):
            raise Corrupt("the stored schema versions do not keep the order of their columns")
        return found


def _evolved(old: pa.Schema, new: pa.Schema) -> pa.Schema:
    """The columns of `old`, then those that only `new` has, if a reader of `old` can follow."""
    for field in old:
        index = new.get_field_index(field.name)
        if index < 0:
            raise SchemaMismatch(f"column {field.name!r} is missing")
        if not new.field(index).type.equals(field.type):
            raise SchemaMismatch(
                f"column {field.name!r} is {field.type} and cannot become {new.field(index).type}"
            )
        if new.field(index).nullable != field.nullable:
            raise SchemaMismatch(f"column {field.name!r} cannot change whether it may be null")
    known = set(old.names)
    added = [field for field in new if field.name not in known]
    for field in added:
        if not field.nullable:
            raise SchemaMismatch(
                f"column {field.name!r} is new and must be nullable, because the older rows lack it"
            )
    return pa.schema([*old, *added])


def project(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of an older version, body or payload, in `schema`: columns it lacks are null.

    >>> old = pa.record_batch({"id": pa.array([1, 2])})
    >>> project(old, pa.schema([("id", pa.int64()), ("city", pa.utf8())])).to_pylist()
    [{'id': 1, 'city': None}, {'id': 2, 'city': None}]
    """
    if batch.schema.equals(schema):
        return batch
    found = batch.schema
    columns = []
    for field in schema:
        index = found.get_field_index(field.name)
        if index >= 0:
            columns.append(batch.column(index))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
