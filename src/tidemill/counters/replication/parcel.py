"""A message on the wire: one frame, as queues have them on disk, and who sends it.

    header, 128 bytes │ Arrow IPC message, perhaps zstd
      its producer: the token of the sender; the producer's number: whom it is meant for

Nothing in it is believed before its checksum, no length before its bound, and nothing is unpacked
before what it claims to become was looked at; see `batch.frame`.
"""

from __future__ import annotations

from typing import NamedTuple

import pyarrow as pa

from tidemill.batch.frame import decode_body, encode_body
from tidemill.batch.header import HEADER_BYTES, pack_header, unpack_header
from tidemill.batch.schema import fingerprint
from tidemill.counters import SCHEMA, Message, Replica, decode, encode
from tidemill.errors import BadMessage, Corrupt, TooLarge, UnknownFormat
from tidemill.limits import MESSAGE_BYTES_MAX

ANYBODY = 0
TOKEN_BYTES = 16
_PLAIN_BYTES = 4 * 1024  # what is smaller is sent as it is
_FINGERPRINT = fingerprint(SCHEMA)


def pack(message: Message, token: bytes, to: Replica | None = None) -> bytes:
    """A message as bytes. `token` tells one process of a node from another; `to` is whom it is
    meant for: what it leaves out is what that replica has, and no other at the same address.
    """
    batch = encode(message)
    body = encode_body(batch, "zstd" if batch.nbytes > _PLAIN_BYTES else None)
    if body.body_bytes > MESSAGE_BYTES_MAX - HEADER_BYTES:
        raise TooLarge(
            f"a message of {batch.num_rows:,} rows takes {body.body_bytes:,} bytes, over "
            f"{MESSAGE_BYTES_MAX:,}: there are more counters than one node can send"
        )
    header = pack_header(
        rows=body.rows,
        first_seq=0,
        key_min=0,
        key_max=0,
        time_us=0,
        fingerprint=_FINGERPRINT,
        body_bytes=body.body_bytes,
        body_check=body.check,
        codec=body.codec,
        producer=token,
        producer_number=ANYBODY if to is None else to.incarnation,
    )
    return b"".join((header, memoryview(body.buffer)))


class Parcel(NamedTuple):
    """A message, the token of its sender, and the incarnation of whom it is meant for."""

    message: Message
    token: bytes
    to: int


def unpack(data: pa.Buffer) -> Parcel:
    """The message in some bytes."""
    try:
        header = unpack_header(memoryview(data))
        if header.fingerprint != _FINGERPRINT:
            raise UnknownFormat("a message has columns of another release: upgrade tidemill")
        batch = decode_body(header, data.slice(HEADER_BYTES), SCHEMA)
    except Corrupt as error:
        raise BadMessage(f"a message is damaged, or none: {error}") from error
    return Parcel(decode(batch), header.producer, header.producer_number)
