"""Frames of earlier releases are read, to the last field, and headers are written the same."""

from __future__ import annotations

import pytest

from tests.batch.golden_frames import FOLDER, FRAMES
from tests.batch.samples import body_of, decode, frame_of
from tidemill.batch import body_schema, fingerprint, pack_header, unpack_header


def test_every_golden_file_is_listed_and_every_listed_one_is_there() -> None:
    assert {path.stem for path in FOLDER.iterdir()} == set(FRAMES)


@pytest.mark.parametrize("name", FRAMES)
def test_a_golden_frame_is_read(name: str) -> None:
    data, schema, options = FRAMES[name]
    frame = (FOLDER / f"{name}.frame").read_bytes()
    carried = options.get("carried", False)
    header, found = decode(frame, body_schema(schema, carried=carried))
    assert found.equals(body_of(data, schema, carried=carried)[0])
    keys = found.column("key").to_pylist()
    assert header._asdict() == {
        "rows": len(data),
        "first_seq": 10,
        "key_min": min(keys),
        "key_max": max(keys),
        "time_us": 1_700_000_000_000_000,
        "fingerprint": fingerprint(schema),
        "body_bytes": len(frame) - 128,
        "body_check": header.body_check,
        "codec": [None, "lz4", "zstd"].index(options.get("codec")),
        "carried": carried,
        "producer": options.get("producer", bytes(16)),
        "producer_number": options.get("producer_number", 0),
        "check": header.check,
    }


@pytest.mark.parametrize("name", FRAMES)
def test_the_header_of_a_golden_frame_is_written_the_same(name: str) -> None:
    frame = (FOLDER / f"{name}.frame").read_bytes()
    fields = unpack_header(frame)._asdict()
    del fields["check"]
    assert pack_header(**fields) == frame[:128]


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_written_now_differs_from_the_golden_one_in_its_body_at_most(name: str) -> None:
    # Arrow may lay out its message in another way and a codec may improve; nothing else may change.
    data, schema, options = FRAMES[name]
    old = unpack_header((FOLDER / f"{name}.frame").read_bytes())
    new = unpack_header(frame_of(data, schema, **options)[0])
    assert (
        new._replace(body_bytes=old.body_bytes, body_check=old.body_check, check=old.check) == old
    )
