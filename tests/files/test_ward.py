"""Records that were set aside: listed, salvaged, saved, pushed back, dropped."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyarrow import parquet

import tidemill as tm
from tidemill.batch import HEADER_BYTES
from tidemill.files.format.frame_table import Entry
from tidemill.files.format.record import ENVELOPE_BYTES
from tidemill.files.journal.segment import segment_path
from tidemill.files.upkeep.carry import carry

GOOD = [(1, b"first"), (300, b"last")]
# Enough of them that a byte of the values is far from the lengths and the keys.
SUFFERING = [(100 + at, b"value %03d" % at * 10) for at in range(40)]


def suffer(path: Path, where: str) -> tuple[Entry, list[Entry]]:
    """A queue with one damaged frame between two good ones: (its entry, all entries)."""
    with tm.PriorityQueue(path, bucket=tm.Shift(63), maintain_in_background=False) as queue:
        queue.push(GOOD[:1])
        queue.push(SUFFERING)
        queue.push(GOOD[1:])
        folder = queue._core.folder
        entries = list(folder.index.frames_of_segment(1))
    entry = entries[1]
    body = entry.offset + ENVELOPE_BYTES + HEADER_BYTES
    at = {
        "envelope": entry.offset + 21,
        "header": entry.offset + ENVELOPE_BYTES + 25,
        "value": entry.offset + ENVELOPE_BYTES + entry.length - 1_000,
        "message": body + 20,
    }[where]
    segment = segment_path(path / "journal", 1)
    data = bytearray(segment.read_bytes())
    data[at] ^= 2
    segment.write_bytes(data)
    assert tm.doctor.repair(path, set_aside=True).done == ("set 1 damaged record aside",)
    return entry, entries


def only(path: Path) -> tm.doctor.Quarantined:
    (one,) = tm.doctor.quarantined(path)
    return one


def rest(path: Path) -> list[tuple[int, bytes]]:
    with tm.PriorityQueue(path) as queue:
        return [(key, value) for key, value in queue.peek(-1).rows()]


@pytest.mark.parametrize("where", ["envelope", "header", "value", "message"])
def test_a_record_is_listed_with_what_its_first_bytes_tell(where: str, tmp_path: Path) -> None:
    entry, _ = suffer(tmp_path, where)
    one = only(tmp_path)
    assert (one.segment, one.offset) == (1, entry.offset)
    assert one.name == f"{1:016d}-{entry.offset:010d}"
    assert one.bytes >= entry.length
    assert one.reason
    assert one.kind == "FRAME"
    assert one.rows == 40
    assert one.keys == (None if where == "header" else (100, 139))
    assert one.seqs == (None if where == "header" else (2, 41))
    assert json.loads(json.dumps(one.to_json()))["offset"] == entry.offset
    assert rest(tmp_path) == GOOD


@pytest.mark.parametrize("where", ["envelope", "header"])
def test_rows_whose_checksum_is_right_come_back_whole(where: str, tmp_path: Path) -> None:
    suffer(tmp_path, where)
    name = only(tmp_path).name
    found = tm.doctor.salvage(tmp_path, name)
    assert found.is_verified
    assert found.rows_lost == 0
    assert found.batch is not None
    assert found.batch.rows() == SUFFERING
    receipt = tm.doctor.push_back(tmp_path, name)
    assert (receipt.count, receipt.first) == (40, 43)
    assert rest(tmp_path) == [GOOD[0], *SUFFERING, GOOD[1]]
    assert only(tmp_path).pushed_back == (receipt.first, receipt.last)
    assert tm.doctor.verify(tmp_path).is_healthy


def test_what_was_pushed_back_is_not_pushed_back_twice(tmp_path: Path) -> None:
    suffer(tmp_path, "envelope")
    name = only(tmp_path).name
    tm.doctor.push_back(tmp_path, name)
    with pytest.raises(tm.InvalidInput, match="seqs 43 to 82"):
        tm.doctor.push_back(tmp_path, name)
    assert len(rest(tmp_path)) == 42
    tm.doctor.push_back(tmp_path, name, again=True)
    assert len(rest(tmp_path)) == 82


def test_rows_with_a_wrong_byte_are_only_pushed_back_if_told_to(tmp_path: Path) -> None:
    suffer(tmp_path, "value")
    name = only(tmp_path).name
    found = tm.doctor.salvage(tmp_path, name)
    assert found.batch is not None
    assert not found.is_verified
    rows = found.batch.rows()
    assert [key for key, _ in rows] == [key for key, _ in SUFFERING]
    assert len(set(rows) - set(SUFFERING)) == 1
    with pytest.raises(tm.InvalidInput, match="some bytes are wrong"):
        tm.doctor.push_back(tmp_path, name)
    assert rest(tmp_path) == GOOD
    tm.doctor.push_back(tmp_path, name, unverified=True)
    assert rest(tmp_path) == [GOOD[0], *rows, GOOD[1]]


def test_a_body_that_makes_no_sense_can_still_be_saved_as_it_is(tmp_path: Path) -> None:
    entry, _ = suffer(tmp_path / "queue", "message")
    name = only(tmp_path / "queue").name
    found = tm.doctor.salvage(tmp_path / "queue", name)
    assert (found.batch, found.rows_lost) == (None, 40)
    for target in ("rows.parquet", "rows.ndjson"):
        with pytest.raises(tm.InvalidInput, match="raw"):
            tm.doctor.save(tmp_path / "queue", name, tmp_path / target)
    with pytest.raises(tm.InvalidInput, match="nothing to push back"):
        tm.doctor.push_back(tmp_path / "queue", name, unverified=True)
    assert tm.doctor.save(tmp_path / "queue", name, tmp_path / "bytes") is None
    stored = segment_path(tmp_path / "queue" / "journal", 1).read_bytes()
    saved = (tmp_path / "bytes").read_bytes()
    assert saved == stored[entry.offset : entry.offset + len(saved)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bytes", "queue"]


def test_rows_are_saved_as_parquet_and_ndjson(tmp_path: Path) -> None:
    suffer(tmp_path / "queue", "envelope")
    name = only(tmp_path / "queue").name
    tm.doctor.save(tmp_path / "queue", name, tmp_path / "rows.parquet")
    table = parquet.read_table(tmp_path / "rows.parquet")
    assert table.column_names == ["seq", "key", "time", "value"]
    assert table.column("seq").to_pylist() == list(range(2, 42))
    assert table.column("value").to_pylist() == [value for _, value in SUFFERING]
    tm.doctor.save(tmp_path / "queue", name, tmp_path / "rows", form="ndjson")
    lines = [json.loads(line) for line in (tmp_path / "rows").read_text().splitlines()]
    found = [(line["key"], base64.b64decode(line["value"])) for line in lines]
    assert found == SUFFERING
    with pytest.raises(tm.InvalidInput, match="there already"):
        tm.doctor.save(tmp_path / "queue", name, tmp_path / "rows.parquet")


def test_only_what_is_named_is_dropped(tmp_path: Path) -> None:
    suffer(tmp_path, "value")
    name = only(tmp_path).name
    for wrong in ("", "..", "../lock", name[:-1], name + ".record", "0" * 16 + "-" + "0" * 10):
        for ask in (tm.doctor.drop, tm.doctor.salvage, tm.doctor.push_back):
            with pytest.raises(tm.InvalidInput, match="list them"):
                ask(tmp_path, wrong)
    assert only(tmp_path).name == name
    tm.doctor.drop(tmp_path, name)
    assert tm.doctor.quarantined(tmp_path) == []
    assert list((tmp_path / "quarantine").iterdir()) == []
    report = tm.doctor.verify(tmp_path)
    assert [one.code for one in report.findings] == ["quarantine"]
    assert report.is_healthy
    assert rest(tmp_path) == GOOD


def test_a_copy_without_its_words_is_still_of_use(tmp_path: Path) -> None:
    suffer(tmp_path, "envelope")
    name = only(tmp_path).name
    words = tmp_path / "quarantine" / f"{name}.json"
    for spoilt in ("{", "[]", "{}", '{"segment": 1}', None):
        if spoilt is None:
            words.unlink()
        else:
            words.write_text(spoilt)
        assert "not known" in only(tmp_path).reason
        report = tm.doctor.verify(tmp_path)
        assert "copy" in {one.code for one in report.findings}
        assert tm.doctor.salvage(tmp_path, name).is_verified
    tm.doctor.push_back(tmp_path, name, again=True)
    assert len(rest(tmp_path)) == 42


def test_a_copy_that_the_journal_does_not_know_is_told(tmp_path: Path) -> None:
    suffer(tmp_path, "value")
    folder = tmp_path / "quarantine"
    name = only(tmp_path).name
    for suffix in (".record", ".json"):
        other = folder / f"{7:016d}-{640:010d}{suffix}"
        other.write_bytes((folder / f"{name}{suffix}").read_bytes())
        other.chmod(0o600)
    report = tm.doctor.verify(tmp_path)
    assert {one.code for one in report.findings} == {"copy", "quarantine"}
    assert len(tm.doctor.quarantined(tmp_path)) == 2


def test_a_stretch_without_a_spine_still_gives_the_records_in_it(tmp_path: Path) -> None:
    """An envelope is damaged, and the spine as well: all behind it is set aside, and is there."""
    with tm.PriorityQueue(tmp_path, bucket=tm.Shift(63)) as queue:
        for key in range(5):
            queue.push([(key, b"value %d" % key)])
        queue.pop()
        folder = queue._core.folder
        second = list(folder.index.frames_of_segment(1))[1]
    segment = segment_path(tmp_path / "journal", 1)
    data = bytearray(segment.read_bytes())
    data[second.offset + 9] ^= 1
    segment.write_bytes(data)
    segment.with_suffix(".spine").unlink()
    report = tm.doctor.repair(tmp_path, set_aside=True)
    # Without the spine nothing vouches for the last operation, the pop.
    assert report.done[1:] == ("set 1 damaged record aside",)
    found = tm.doctor.salvage(tmp_path, only(tmp_path).name)
    assert found.is_verified
    assert found.batch is not None
    assert found.batch.rows() == [(key, b"value %d" % key) for key in range(1, 5)]
    assert found.words.startswith("4 records")


def test_rows_of_an_older_schema_come_back_in_the_newest(tmp_path: Path) -> None:
    first = pa.schema([("place", pa.utf8())])
    second = pa.schema([("place", pa.utf8()), ("height", pa.int64())])
    with tm.PriorityQueue(tmp_path, schema=first) as queue:
        queue.push([(1, {"place": "low"}), (2, {"place": "lower"})])
        entry = next(iter(queue._core.folder.index.frames_of_segment(1)))
    segment = segment_path(tmp_path / "journal", 1)
    data = bytearray(segment.read_bytes())
    data[entry.offset + ENVELOPE_BYTES + 60] ^= 1  # The fingerprint of the schema.
    segment.write_bytes(data)
    tm.PriorityQueue(tmp_path, schema=second, on_corruption="continue").close()
    name = only(tmp_path).name
    assert tm.doctor.salvage(tmp_path, name).is_verified
    tm.doctor.push_back(tmp_path, name)
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.pop(-1).rows() == [
            (1, {"place": "low", "height": None}),
            (2, {"place": "lower", "height": None}),
        ]


def test_a_huge_quarantine_is_listed_and_verified(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, sync="none", maintain_in_background=False) as queue:
        for key in range(400):
            queue.push([(key % 7, b"x")])
        entries = list(queue._core.folder.index.frames_of_segment(1))
    segment = segment_path(tmp_path / "journal", 1)
    data = bytearray(segment.read_bytes())
    for entry in entries[::2]:
        data[entry.offset + ENVELOPE_BYTES + 70] ^= 1
    segment.write_bytes(data)
    tm.PriorityQueue(tmp_path, on_corruption="continue", sync="none").close()
    assert len(tm.doctor.quarantined(tmp_path)) == 200
    report = tm.doctor.verify(tmp_path)
    (told,) = [one for one in report.findings if one.code == "quarantine"]
    assert told.items == 200
    assert report.is_healthy
    assert report.forks[""] == 200


@pytest.mark.parametrize("words", ["torn", "missing", "infinite"])
def test_what_may_have_been_pushed_back_is_not_pushed_back_unasked(
    words: str, tmp_path: Path
) -> None:
    suffer(tmp_path, "envelope")
    name = only(tmp_path).name
    tm.doctor.push_back(tmp_path, name)
    path = tmp_path / "quarantine" / f"{name}.json"
    if words == "missing":
        path.unlink()
    else:
        text = path.read_text()
        path.write_text(
            text[:40] if words == "torn" else text.replace('"bytes":', '"bytes": 1e999, "x":')
        )
    with pytest.raises(tm.InvalidInput, match="is not known"):
        tm.doctor.push_back(tmp_path, name)
    assert tm.doctor.push_back(tmp_path, name, again=True).count == len(SUFFERING)


def test_rows_that_can_be_read_in_two_ways_are_not_verified(tmp_path: Path) -> None:
    old = pa.schema([("x", pa.int64())])
    new = pa.schema([("x", pa.int64()), ("y", pa.int64()), ("z", pa.int64())])
    with tm.PriorityQueue(
        tmp_path, schema=old, segment_bytes=64 * 1024, maintain_in_background=False
    ) as queue:
        queue.push([{"key": key, "x": 10_000 + key} for key in range(100)], key="key")
        queue._core.folder.journal.seal_soon()
        queue.push([{"key": 500, "x": 1}], key="key")
        carry(queue._core.folder, 1, apart=True)
    with tm.PriorityQueue(tmp_path, schema=new, maintain_in_background=False) as queue:
        folder = queue._core.folder
        carried = [
            entry
            for number in folder.journal.segments
            for entry in folder.index.frames_of_segment(number)
            if entry.rows == 100
        ]
    (entry,) = carried
    segment = segment_path(tmp_path / "journal", entry.segment)
    data = bytearray(segment.read_bytes())
    data[entry.offset + ENVELOPE_BYTES + 56] ^= 2
    segment.write_bytes(data)
    tm.doctor.repair(tmp_path, set_aside=True)
    found = tm.doctor.salvage(tmp_path, only(tmp_path).name)
    assert not found.is_verified
    assert "2 ways to read them" in found.words
    with pytest.raises(tm.InvalidInput, match="unverified"):
        tm.doctor.push_back(tmp_path, only(tmp_path).name)


def test_much_damage_to_nested_values_does_not_take_for_ever(tmp_path: Path) -> None:
    schema = pa.schema([("words", pa.list_(pa.string()))])
    values = [f"word {at} " * 20 for at in range(4_000)]
    with tm.PriorityQueue(tmp_path, schema=schema, maintain_in_background=False) as queue:
        queue.push([{"key": at, "words": [value]} for at, value in enumerate(values)], key="key")
        entry = next(iter(queue._core.folder.index.frames_of_segment(1)))
    segment = segment_path(tmp_path / "journal", 1)
    data = bytearray(segment.read_bytes())
    at = bytes(data).index(b"word 2000 ")
    data[at] = 0xFF
    segment.write_bytes(data)
    tm.doctor.repair(tmp_path, set_aside=True)
    assert entry.rows == 4_000
    with patch("tidemill.files.doctor.salvage._TRIES_MAX", 50):
        found = tm.doctor.salvage(tmp_path, only(tmp_path).name)
    assert not found.is_verified
    assert found.rows_lost is not None
    assert found.rows_lost > 0
