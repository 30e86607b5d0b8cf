"""Payload schemas: typed, durable before the first frame that uses one, and growing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidemill as tm
from tidemill.errors import TidemillError
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.journal.head import Head
from tidemill.files.readers import follower as followers
from tidemill.files.readers.reach import read_reach
from tidemill.files.upkeep.carry import carry

FIRST = pa.schema([("id", pa.int64()), ("city", pa.string())])
SECOND = pa.schema([("id", pa.int64()), ("city", pa.string()), ("zip", pa.string())])


def test_a_typed_queue_gives_back_the_types_it_was_given(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            ("n", pa.int32()),
            ("x", pa.float64()),
            ("at", pa.timestamp("us", "UTC")),
            ("tags", pa.list_(pa.string())),
            ("who", pa.struct([("name", pa.string()), ("age", pa.int16())])),
        ]
    )
    rows = [
        {"n": 1, "x": 0.5, "at": None, "tags": ["a", "b"], "who": {"name": "Ada", "age": 36}},
        {"n": None, "x": None, "at": None, "tags": [], "who": None},
    ]
    with tm.PriorityQueue(tmp_path, schema=schema) as queue:
        queue.push([(2, rows[0]), (1, rows[1])])
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.schema.equals(schema)
        batch = queue.pop(2)
        assert batch.schema.equals(schema)
        assert batch.rows() == [(1, rows[1]), (2, rows[0])]


def test_a_newer_version_adds_columns_and_older_rows_read_as_null(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, schema=FIRST) as queue:
        queue.push([(1, {"id": 1, "city": "Oslo"}), (3, {"id": 3, "city": "Lyon"})])
    with tm.PriorityQueue(tmp_path, schema=SECOND) as queue:
        queue.push([(2, {"id": 2, "city": "Ghent", "zip": "9000"})])
        assert queue.peek(3).rows() == [
            (1, {"id": 1, "city": "Oslo", "zip": None}),
            (2, {"id": 2, "city": "Ghent", "zip": "9000"}),
            (3, {"id": 3, "city": "Lyon", "zip": None}),
        ]
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.schema.equals(SECOND)
        assert queue.pop(-1).payload.column("zip").to_pylist() == [None, "9000", None]


def test_opening_with_the_same_or_no_schema_adds_no_version(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, schema=FIRST):
        pass
    written = (tmp_path / "settings.json").read_bytes()
    for schema in (FIRST, None):
        with tm.PriorityQueue(tmp_path, schema=schema) as queue:
            queue.push([(1, {"id": 1, "city": "x"})])
    assert (tmp_path / "settings.json").read_bytes() == written


def test_rows_of_old_versions_are_carried_forward_in_the_newest(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, schema=FIRST, segment_bytes=16 * 1024) as queue:
        for number in range(50):
            queue.push([(number, {"id": number, "city": "c" * 200})])
    with tm.PriorityQueue(tmp_path, schema=SECOND, maintain_in_background=False) as queue:
        queue.push([(50, {"id": 50, "city": "d", "zip": "z"})])
        queue.delete(3, 40)
        carry(queue._core.folder, 1)
        assert min(queue._core.folder.journal.segments) > 1
    with tm.PriorityQueue(tmp_path) as queue:
        rows = queue.pop(-1).rows()
    assert [key for key, _ in rows] == [0, 1, 2, *range(41, 51)]
    assert [row["zip"] for _, row in rows] == [None] * 12 + ["z"]


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([("id", pa.int64())]),
        pa.schema([("id", pa.string()), ("city", pa.string())]),
        pa.schema([*FIRST, pa.field("zip", pa.string(), nullable=False)]),
        pa.schema([("value", pa.binary())]),
    ],
    ids=["a column less", "another type", "not nullable", "something else"],
)
def test_a_version_may_only_add_nullable_columns(tmp_path: Path, schema: pa.Schema) -> None:
    with tm.PriorityQueue(tmp_path, schema=FIRST) as queue:
        queue.push([(1, {"id": 1, "city": "Oslo"})])
    written = (tmp_path / "settings.json").read_bytes()
    with pytest.raises(tm.SchemaMismatch):
        tm.PriorityQueue(tmp_path, schema=schema)
    assert (tmp_path / "settings.json").read_bytes() == written
    with tm.PriorityQueue(tmp_path) as queue:
        assert len(queue) == 1


@pytest.mark.parametrize(
    "data",
    [
        [(1, b"bytes")],
        [(1, {"id": "one", "city": "Oslo"})],
        [(1, {"id": 1, "town": "Oslo"})],
        [(1, {"id": 2**63, "city": "Oslo"})],
        pa.table({"key": [1], "id": ["one"]}),
        pa.table({"key": [1], "id": [1], "city": ["a"], "extra": [1]}),
    ],
    ids=["bytes", "wrong type", "unknown column", "too large", "wrong column", "extra column"],
)
def test_rows_that_do_not_fit_the_schema_are_refused_whole(tmp_path: Path, data: object) -> None:
    with tm.PriorityQueue(tmp_path, schema=FIRST) as queue:
        with pytest.raises(TidemillError):
            queue.push(data)
        assert (len(queue), queue.stats().next_seq) == (0, 1)


def test_a_version_that_was_only_just_added_survives_being_killed(tmp_path: Path) -> None:
    """The settings are replaced as a whole before a frame can name the version."""
    with tm.PriorityQueue(tmp_path, schema=FIRST):
        pass
    (tmp_path / "settings.json.new").write_bytes(b"half a draft")
    with tm.PriorityQueue(tmp_path, schema=SECOND) as queue:
        queue.push([(1, {"id": 1, "city": "a", "zip": "b"})])
    assert not (tmp_path / "settings.json.new").exists()
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop().rows() == [(1, {"id": 1, "city": "a", "zip": "b"})]


def test_a_reader_that_builds_while_an_owner_adds_a_version_knows_all_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tm.PriorityQueue(tmp_path, schema=FIRST) as queue:
        queue.push([(1, {"id": 1, "city": "Oslo"})])
    owners: list[tm.PriorityQueue] = []

    def look_late(fs: FileSystem, path: Path) -> Head | None:
        if not owners:
            owners.append(tm.PriorityQueue(path, schema=SECOND))
            owners[0].push([(2, {"id": 2, "city": "Ghent", "zip": "9000"})])
        return read_reach(fs, path)

    monkeypatch.setattr(followers, "read_reach", look_late)
    with tm.PriorityQueue(tmp_path, read_only=True) as reader:
        assert [row["zip"] for _, row in reader.peek(-1).rows()] == [None, "9000"]
        assert reader.schema.equals(SECOND)
    owners[0].close()
