"""Items ⇄ Arrow ⇄ frame: pure, no I/O.

header     the 128 bytes in front of a frame
ipc        what is checked of a body before Arrow reads it
skeleton   the bytes that are the same in every message of a schema
frame      a batch as the body of a frame, and back
types      which Arrow types a payload may have
schema     payload schemas, written down and fingerprinted
versions   schemas that grow
wrappings  what is taken off a column first: dictionaries, views and the like
columns    columns brought into a schema
keys       int64, from integers or from instants
sizes      the bounds on one push
tables     Arrow, pandas, polars as keys and payload
literals   pairs, bytes, dicts as keys and payload
rows       whatever a caller pushes, by the two above
ready      what needs nothing done to it
plain      single items of bytes
pairs      items as Python objects
batch      what a queue gives back
log_batch  what a log gives back, and what it takes
layout     which frames rows lie in, for whoever divides them
"""

from tidemill.batch.batch import Batch, Item, put_together
from tidemill.batch.frame import (
    TIME_FIELD,
    EncodedBody,
    body_schema,
    check_known,
    decode_body,
    decode_known,
    encode_body,
    int64_array,
    join_body,
    read_body,
)
from tidemill.batch.header import (
    HEADER_BYTES,
    FrameHeader,
    pack_header,
    unpack_header,
)
from tidemill.batch.keys import stable_order
from tidemill.batch.layout import Layout
from tidemill.batch.log_batch import LogBatch, LogItem, to_payload
from tidemill.batch.pairs import Pairs
from tidemill.batch.plain import PlainForm, PlainRow
from tidemill.batch.ready import ReadyForm, int64_values
from tidemill.batch.rows import Rows, to_rows
from tidemill.batch.schema import (
    DEFAULT,
    check_payload_schema,
    fingerprint,
)
from tidemill.batch.versions import SchemaVersions, project

__all__ = [
    "DEFAULT",
    "HEADER_BYTES",
    "TIME_FIELD",
    "Batch",
    "EncodedBody",
    "FrameHeader",
    "Item",
    "Layout",
    "LogBatch",
    "LogItem",
    "Pairs",
    "PlainForm",
    "PlainRow",
    "ReadyForm",
    "Rows",
    "SchemaVersions",
    "body_schema",
    "check_known",
    "check_payload_schema",
    "decode_body",
    "decode_known",
    "encode_body",
    "fingerprint",
    "int64_array",
    "int64_values",
    "join_body",
    "pack_header",
    "project",
    "put_together",
    "read_body",
    "stable_order",
    "to_payload",
    "to_rows",
    "unpack_header",
]
