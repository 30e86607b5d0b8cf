"""Bodies on a shelf are the bodies that were put there."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidemill.batch import EncodedBody, encode_body
from tidemill.files.shelf import Shelf


def body(size: int) -> EncodedBody:
    return encode_body(pa.record_batch({"value": pa.array([bytes([size % 251]) * size])}))


def test_bodies_keep_their_bytes_from_block_to_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemill.files.shelf._BLOCK_BYTES", 64 * 1024)
    shelf = Shelf()
    bodies = [body(size) for size in range(0, 40_000, 611)]
    kept = [shelf.keep(one) for one in bodies]
    for before, after in zip(bodies, kept, strict=True):
        assert after.buffer == before.buffer
        assert after[1:] == before[1:]
