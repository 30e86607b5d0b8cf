"""Payloads of every accepted type, and frames made of them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from tidemill.batch import (
    DEFAULT,
    FrameHeader,
    body_schema,
    check_payload_schema,
    decode_body,
    encode_body,
    fingerprint,
    join_body,
    pack_header,
    to_rows,
    unpack_header,
)

NOON = datetime(2024, 2, 29, 12, 0, 0, 123456, tzinfo=UTC)

TYPED = check_payload_schema(
    pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("tiny", pa.int8()),
            ("ratio", pa.float32()),
            ("weight", pa.float64()),
            ("yes", pa.bool_()),
            ("text", pa.utf8()),
            ("blob", pa.binary()),
            ("day", pa.date32()),
            ("instant", pa.timestamp("us", "UTC")),
            ("clock", pa.timestamp("us")),
            ("lasted", pa.duration("us")),
            ("price", pa.decimal128(12, 2)),
            ("tags", pa.list_(pa.utf8())),
            ("place", pa.struct([("lat", pa.float64()), ("names", pa.list_(pa.binary()))])),
            ("counts", pa.map_(pa.utf8(), pa.int64())),
        ]
    )
)


def typed_row(number: int) -> dict[str, Any]:
    """A row of `TYPED`; some are full, some are mostly null."""
    if number % 5 == 4:
        return {"id": number}
    return {
        "id": number,
        "tiny": number % 100 - 50,
        "ratio": number / 2,
        "weight": number / 3,
        "yes": number % 2 == 0,
        "text": "é" * (number % 7),
        "blob": bytes(number % 11),
        "day": date(2020, 1, 1) + timedelta(days=number),
        "instant": NOON + timedelta(seconds=number),
        "clock": NOON.replace(tzinfo=None),
        "lasted": timedelta(microseconds=number),
        "price": Decimal(number) / 4,
        "tags": [["a", None, "ccc"], [], None][number % 3],
        "place": [{"lat": 1.5, "names": [b"x", None]}, None][number % 2],
        "counts": [[("k", number)], [], None][number % 3],
    }


def typed_rows(count: int) -> list[dict[str, Any]]:
    """So many rows of `TYPED`."""
    return [typed_row(number) for number in range(count)]


def body_of(
    data: object, schema: pa.Schema = DEFAULT, *, carried: bool = False
) -> tuple[pa.RecordBatch, pa.Schema]:
    """The body of a frame of these rows, and its schema."""
    rows = to_rows(data, schema=schema)
    keys = np.arange(len(rows)) if rows.keys is None else rows.keys
    columns = {"seqs": np.arange(len(rows)) + 10, "times": np.arange(len(rows))} if carried else {}
    return join_body(keys, rows.payload, **columns), body_schema(schema, carried=carried)


def frame_of(
    data: object,
    schema: pa.Schema = DEFAULT,
    *,
    carried: bool = False,
    codec: str | None = None,
    **options: Any,
) -> tuple[bytes, pa.Schema]:
    """A whole frame of these rows, and the schema of its body."""
    batch, body = body_of(data, schema, carried=carried)
    keys = batch.column(0).to_numpy()
    encoded = encode_body(batch, codec)
    header = pack_header(
        rows=encoded.rows,
        first_seq=10,
        key_min=int(keys.min()),
        key_max=int(keys.max()),
        time_us=1_700_000_000_000_000,
        fingerprint=fingerprint(schema),
        body_bytes=len(encoded.buffer),
        body_check=encoded.check,
        codec=encoded.codec,
        carried=carried,
        **options,
    )
    return header + bytes(encoded.buffer), body


def decode(frame: bytes, schema: pa.Schema) -> tuple[FrameHeader, pa.RecordBatch]:
    """What a reader of the frame does."""
    header = unpack_header(frame)
    return header, decode_body(header, frame[128:], schema)


def vouched(body: bytes, *, rows: int, codec: int = 0, carried: bool = False) -> bytes:
    """Any bytes as the body of a frame whose checksums are right."""
    header = pack_header(
        rows=rows,
        first_seq=1,
        key_min=0,
        key_max=0,
        time_us=0,
        fingerprint=0,
        body_bytes=len(body),
        body_check=xxh3_64_intdigest(body),
        codec=codec,
        carried=carried,
    )
    return header + body
