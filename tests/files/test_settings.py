"""What a folder records about itself, and who may open it."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pyarrow as pa
import pytest
import xxhash

import tidemill as tm
from tidemill.files.state.bucket import BucketFunction


def rewrite(path: Path, **changes: object) -> None:
    """Change settings, checksum included, as another release would write them."""
    document = json.loads(path.read_bytes())
    document.pop("check")
    document.update(changes)
    canonical = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    document["check"] = xxhash.xxh3_64_hexdigest(canonical)
    path.write_text(json.dumps(document))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tm.PriorityQueue(tmp_path / "queue", bucket=tm.Width(10)) as queue:
        queue.push([(1, b"a")])
    return tmp_path / "queue"


def test_a_folder_is_for_the_owners_eyes_only(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        allowed = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == allowed, path


def test_missing_parents_are_made(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path / "some" / "where" / "else") as queue:
        queue.push([b"a"])
    with tm.PriorityQueue(str(tmp_path / "some" / "where" / "else")) as queue:
        assert len(queue) == 1


def test_what_is_recorded_holds_when_nothing_is_given(folder: Path) -> None:
    with tm.PriorityQueue(folder) as queue:
        assert queue.schema.names == ["value"]
        queue.push([(11, b"b")])
        assert queue.stats().buckets == 2


def test_a_newer_format_is_refused_with_its_version(folder: Path) -> None:
    rewrite(folder / "settings.json", format=99)
    with pytest.raises(tm.UnknownFormat, match="99"):
        tm.PriorityQueue(folder)


def test_another_kind_of_folder_is_no_priority_queue(folder: Path) -> None:
    rewrite(folder / "settings.json", kind="log")
    with pytest.raises(tm.NotAQueue, match="log"):
        tm.PriorityQueue(folder)


@pytest.mark.parametrize(
    "damage",
    [b"", b"{", b"[]", b"null", b'{"check": 1}', b"\xff\xfe", b"[" * 100_000],
    ids=["empty", "half", "list", "null", "wrong check", "no text", "deep"],
)
def test_damaged_settings_are_corrupt_and_named(folder: Path, damage: bytes) -> None:
    (folder / "settings.json").write_bytes(damage)
    with pytest.raises(tm.Corrupt) as found:
        tm.PriorityQueue(folder)
    assert found.value.path == folder / "settings.json"


def test_one_changed_character_of_the_settings_is_noticed(folder: Path) -> None:
    text = (folder / "settings.json").read_text()
    (folder / "settings.json").write_text(text.replace("width:10", "width:11"))
    with pytest.raises(tm.Corrupt, match="checksum"):
        tm.PriorityQueue(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"bucket": 5},
        {"schemas": []},
        {"schemas": "x"},
        {"segment_bytes": "many"},
        {"segment_bytes": -1},
        {"bucket": "modulo:7"},
    ],
    ids=str,
)
def test_settings_that_make_no_sense_are_a_typed_error(
    folder: Path, changes: dict[str, object]
) -> None:
    rewrite(folder / "settings.json", **changes)
    with pytest.raises((tm.Corrupt, tm.BucketMismatch)):
        tm.PriorityQueue(folder)


def test_missing_settings_of_a_folder_with_items_are_corrupt(folder: Path) -> None:
    (folder / "settings.json").unlink()
    with pytest.raises(tm.Corrupt, match=r"settings\.json"):
        tm.PriorityQueue(folder)


def test_a_missing_journal_is_corrupt_and_not_an_empty_queue(folder: Path) -> None:
    (folder / "journal").rename(folder.parent / "elsewhere")
    with pytest.raises(tm.Corrupt, match="journal"):
        tm.PriorityQueue(folder)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("sync", "sometimes"),
        ("sync", None),
        ("on_corruption", "shrug"),
        ("buckets_open_max", -1),
        ("buckets_open_max", 1.5),
        ("buckets_open_max", True),
        ("segment_bytes", 0),
        ("segment_bytes", "64 MiB"),
        ("segment_bytes", 2**40),
        ("schema", {"value": "binary"}),
        ("bucket", lambda keys: keys),
        ("bucket", 37),
    ],
)
def test_an_option_that_makes_no_sense_is_refused_before_a_folder_is_made(
    tmp_path: Path, option: str, value: object
) -> None:
    with pytest.raises(tm.InvalidInput):
        tm.PriorityQueue(tmp_path / "queue", **{option: value})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [5, None, b"bytes", "with\0zero"])
def test_a_path_is_a_string_or_a_path(path: object) -> None:
    with pytest.raises(tm.InvalidInput):
        tm.PriorityQueue(path)  # type: ignore[arg-type]


def test_a_schema_that_cannot_be_stored_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    for schema in (pa.schema([("seq", pa.int64())]), pa.schema([("half", pa.float16())])):
        with pytest.raises(tm.SchemaMismatch):
            tm.PriorityQueue(tmp_path / "queue", schema=schema)
    assert list(tmp_path.iterdir()) == []


def test_the_settings_are_there_before_the_first_item_can_be(tmp_path: Path) -> None:
    function: BucketFunction = tm.Shift(5)
    with tm.PriorityQueue(tmp_path, bucket=function):
        document = json.loads((tmp_path / "settings.json").read_bytes())
    assert (document["format"], document["kind"]) == (2, "priority-queue")
    assert document["bucket"] == "shift:5"
