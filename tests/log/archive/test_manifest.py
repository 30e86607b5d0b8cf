"""The manifest: what it says is checked, and it stays small however many segments there are."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from tidemill.batch import DEFAULT, SchemaVersions
from tidemill.errors import Bug, Corrupt, UnknownFormat
from tidemill.log.archive.manifest import (
    Manifest,
    Segment,
    encode_page,
    epoch_of,
    new_page_name,
    new_segment_name,
    parse_page,
    segment_folder,
)

VERSIONS = SchemaVersions([DEFAULT])
EMPTY = Manifest(log="a1", first=1, next=1, versions=VERSIONS)


def segment(first: int, rows: int = 10, time_us: int = 0) -> Segment:
    return Segment(
        file=f"{segment_folder(first)}/1-ab12.parquet",
        first=first,
        rows=rows,
        bytes=100,
        footer_bytes=20,
        time_min=time_us or first,
        time_max=(time_us or first) + 5,
        digest="0" * 32,
        footer_digest="0" * 16,
        schema="0" * 16,
    )


def of(count: int) -> Manifest:
    manifest = EMPTY
    for number in range(count):
        manifest = manifest.added(segment(1 + 10 * number), VERSIONS)
    return manifest


def test_a_manifest_says_again_what_it_was_made_of() -> None:
    manifest = replace(
        of(3), epoch=7, first=5, gone=("segments/00000000000000000001-1-ff.parquet",)
    )
    assert Manifest.parse(manifest.encode()) == manifest
    assert (manifest.next, manifest.covered, manifest.count, manifest.bytes) == (31, 1, 3, 300)


def test_segments_follow_one_another() -> None:
    with pytest.raises(Bug, match="does not follow"):
        of(2).added(segment(22), VERSIONS)
    torn = replace(of(3), segments=(segment(1), segment(21)))
    with pytest.raises(Corrupt, match="begins at row 21, not at 11"):
        Manifest.parse(torn.encode())
    with pytest.raises(Corrupt, match="ends at row 11"):
        Manifest.parse(replace(of(1), next=12).encode())
    with pytest.raises(Corrupt, match="older than the one before"):
        Manifest.parse(replace(of(2), segments=(segment(1, time_us=99), segment(11))).encode())


def test_every_changed_byte_is_noticed() -> None:
    data = of(2).encode().to_pybytes()
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises(Corrupt):
            Manifest.parse(pa.py_buffer(bytes(damaged)))
    for length in range(0, len(data), 7):
        with pytest.raises(Corrupt):
            Manifest.parse(pa.py_buffer(data[:length]))


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "segments/../x",
        "/etc",
        "segments/x.parquet",
        "segments/first_seq=1/../x",
    ],
)
def test_a_name_that_leads_elsewhere_is_refused(name: str) -> None:
    evil = replace(of(1), segments=(segment(1)._replace(file=name),))
    with pytest.raises(Corrupt, match="no name of an object"):
        Manifest.parse(evil.encode())


def test_a_newer_format_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.log.archive.manifest._VERSION", 2)
    data = of(1).encode()
    monkeypatch.undo()
    with pytest.raises(UnknownFormat, match="format version 2"):
        Manifest.parse(data)


def test_a_page_lists_the_segments_that_it_was_made_of() -> None:
    segments = of(5).segments
    page, data = encode_page(segments, new_page_name(1, 1))
    assert (page.first, page.next, page.segments, page.bytes) == (1, 51, 5, 500)
    assert parse_page(page, data) == segments
    with pytest.raises(Corrupt, match="checksum"):
        parse_page(page, pa.py_buffer(data.to_pybytes()[:-3]))
    other, _ = encode_page(segments[1:], page.file)
    with pytest.raises(Corrupt, match="other rows"):
        parse_page(other._replace(digest=page.digest), data)


def test_a_hundred_thousand_segments_make_a_manifest_of_some_kilobytes() -> None:
    pages = []
    for number in range(390):
        segments = [segment(1 + 10 * (256 * number + at)) for at in range(256)]
        pages.append(encode_page(segments, new_page_name(segments[0].first, 1))[0])
    tail = tuple(segment(pages[-1].next + 10 * at) for at in range(512))
    manifest = replace(EMPTY, pages=tuple(pages), segments=tail, next=tail[-1].next)
    assert manifest.count > 100_000
    assert manifest.encode().size < 300_000
    assert Manifest.parse(manifest.encode()) == manifest


def test_an_epoch_is_read_from_a_name() -> None:
    assert epoch_of(new_segment_name(5, 12)) == epoch_of(new_page_name(5, 12)) == 12
    assert epoch_of("segments/00000000000000000005-12-c0ffee.parquet") == 12, "an older form"
    assert epoch_of("segments/readme.txt") is None
    assert epoch_of("pages/first_seq=00000000000000000005/12-c0ffee.json") is None
