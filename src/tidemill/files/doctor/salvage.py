"""Gets out of the bytes of a damaged record whatever rows still decode. Pure.

    envelope damaged   header and body are whole: all rows, verified
    header damaged     the body has a check of its own: all rows, verified, if that holds; their
                       seqs and times stood in the header and are not known
    body damaged       the rows that are valid Arrow; some value among them is wrong, or more

Bytes are decoded by the same checks as any others: what comes out is valid, even if it is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import xxhash

from tidemill.batch import HEADER_BYTES, Batch, SchemaVersions, int64_values, join_body, project
from tidemill.batch.header import CODEC_NONE, FrameHeader, unpack_header
from tidemill.batch.ipc import check_message
from tidemill.errors import Corrupt, UnknownFormat
from tidemill.files.format.record import (
    ALIGNMENT,
    ENVELOPE_BYTES,
    MAGIC,
    Envelope,
    Kind,
    padded,
    split_place,
    stated_place,
    unpack_envelope,
)
from tidemill.limits import SEQ_MAX, TIME_US_MAX

_TRIES_MAX = 2_000  # at finding rows that are valid among others
_BODY_CHECK = struct.Struct("<88xQ")  # where a frame header keeps the check of the body


@dataclass(frozen=True, slots=True)
class Salvaged:
    """What could be had of a damaged record."""

    batch: Batch | None  # None: nothing
    is_verified: bool  # the rows are what was pushed: their checksum is right
    rows_lost: int | None  # of the record, how many could not be had; None: it is not known
    words: str  # what it is, for people


@dataclass(frozen=True, slots=True)
class _Guess:
    """How a body may have to be read."""

    body: memoryview
    rows: int
    schema: pa.Schema
    carried: bool
    codec: int
    check: int
    first_seq: int
    time_us: int


def read_head(data: bytes, place: int) -> tuple[Envelope | None, FrameHeader | None]:
    """The envelope and the frame header at the start of a record, as far as they are whole."""
    envelope = header = None
    stated = stated_place(data) if len(data) >= ENVELOPE_BYTES else place
    # Where another queue wrote the segment, its records bear the number that it had there.
    is_here = split_place(stated)[1] == split_place(place)[1]
    try:
        envelope = unpack_envelope(data[:ENVELOPE_BYTES], stated if is_here else place)
    except (Corrupt, UnknownFormat):
        pass  # The frame behind it may be whole all the same.
    if envelope is None or envelope.kind is Kind.FRAME:
        try:
            header = unpack_header(data[ENVELOPE_BYTES : ENVELOPE_BYTES + HEADER_BYTES])
        except (Corrupt, UnknownFormat):
            pass  # The body may be.
    return envelope, header


def salvage(data: bytes, place: int, versions: SchemaVersions) -> Salvaged:
    """The rows that the bytes of a record from `place` still have.

    Where its length could not be read, the bytes are a stretch with the records behind it. Those
    are told from rubbish by their checksum and by the place that they bear.
    """
    starts = _starts(data, place)
    found = [
        _salvage_one(data[start:stop], place + start, versions)
        for start, stop in zip(starts, [*starts[1:], len(data)], strict=True)
    ]
    if len(found) == 1:
        end = _end_of_first(data, place)
        if end is None or not any(data[end:]):
            return found[0]
        words = f"{found[0].words}; what lies behind it cannot be told"
        return replace(found[0], rows_lost=None, words=words)
    batches = [one.batch for one in found if one.batch is not None]
    lost = [one.rows_lost for one in found]
    return Salvaged(
        Batch.concat(batches) if batches else None,
        bool(batches) and all(one.is_verified for one in found if one.batch is not None),
        None if None in lost else sum(one for one in lost if one is not None),
        f"{len(found)} records: " + "; ".join(sorted({one.words for one in found})),
    )


def _end_of_first(data: bytes, place: int) -> int | None:
    """Where the first record ends, if that is known."""
    envelope, header = read_head(data, place)
    if envelope is not None:
        return envelope.total_bytes
    return None if header is None else padded(ENVELOPE_BYTES + HEADER_BYTES + header.body_bytes)


def _starts(data: bytes, place: int) -> list[int]:
    """Where records begin in a stretch of them; the first one does, whatever it looks like."""
    starts = [0]
    at = _end_of_first(data, place) or ALIGNMENT
    while (at := data.find(MAGIC, at)) >= 0:
        if at % ALIGNMENT == 0:
            envelope, _ = read_head(data[at : at + ENVELOPE_BYTES], place + at)
            if envelope is not None:
                starts.append(at)
                at += envelope.total_bytes
                continue
        at += 1
    return starts


def _salvage_one(data: bytes, place: int, versions: SchemaVersions) -> Salvaged:
    envelope, header = read_head(data, place)
    if envelope is not None and envelope.kind is not Kind.FRAME:
        return Salvaged(None, False, 0, f"a {envelope.kind.name} record, which has no items")
    rows = header.rows if header is not None else envelope.rows if envelope is not None else None
    decoded = [
        (guess, found)
        for guess in _guesses(memoryview(data), envelope, header, versions)
        if (found := _decode(guess)) is not None
    ]
    likely = [one for one in decoded if _is_likely(*one)] or decoded
    if not likely:
        return Salvaged(None, False, rows, "no rows decode")
    guess, (body, is_whole) = likely[0]
    is_right = is_whole and xxhash.xxh3_64_intdigest(guess.body) == guess.check
    batch = _batch(body, guess, versions)
    lost = guess.rows - len(batch)
    words = "all rows decode" if not lost else f"{lost} rows do not decode"
    words += ", and their checksum is right" if is_right else ", but some bytes are wrong"
    if len(likely) > 1:
        words += f"; {len(likely)} ways to read them fit, and this is one"
    if header is None:
        words += "; their seqs and times are not known"
    # The checksum is of the bytes, and does not say what they mean.
    return Salvaged(batch, is_right and len(likely) == 1, lost, words)


def _guesses(
    data: memoryview,
    envelope: Envelope | None,
    header: FrameHeader | None,
    versions: SchemaVersions,
) -> Iterator[_Guess]:
    start = ENVELOPE_BYTES + HEADER_BYTES
    if header is not None:
        if header.fingerprint in versions:
            schema = versions.body(header.fingerprint, carried=header.carried)
            body = data[start : start + header.body_bytes]
            yield _Guess(
                body,
                header.rows,
                schema,
                header.carried,
                header.codec,
                header.body_check,
                header.first_seq,
                header.time_us,
            )
        return
    if envelope is None or len(data) < start:
        return
    check = _BODY_CHECK.unpack_from(data, ENVELOPE_BYTES)[0]
    body = data[start : ENVELOPE_BYTES + envelope.length]
    for version in reversed(list(versions.marks)):
        for carried in (False, True):
            schema = versions.body(version, carried=carried)
            yield _Guess(body, envelope.rows, schema, carried, CODEC_NONE, check, 0, 0)


def _decode(guess: _Guess) -> tuple[pa.RecordBatch, bool] | None:
    """(the rows that are valid, whether those are all)."""
    try:
        check_message(guess.body, schema=guess.schema, rows=guess.rows, codec=guess.codec)
        batch = pa.ipc.read_record_batch(pa.py_buffer(bytes(guess.body)), guess.schema)
    except (Corrupt, pa.ArrowException, OSError, ValueError, OverflowError):
        return None
    parts = list(_valid_parts(batch))
    rows = sum(part.num_rows for part in parts)
    return (pa.concat_batches(parts), rows == batch.num_rows) if rows else None


def _is_likely(guess: _Guess, found: tuple[pa.RecordBatch, bool]) -> bool:
    """Whether what decoded may have been a frame: sorted, and with seqs and times if carried."""
    body = found[0]
    keys = int64_values(body.column(0))
    if len(keys) == guess.rows and np.any(keys[1:] < keys[:-1]):
        return False
    if not guess.carried:
        return True
    seqs, times = int64_values(body.column(1)), int64_values(body.column(2))
    are_seqs = (seqs > 0) & (seqs <= SEQ_MAX)
    return bool(np.all(are_seqs & (times >= 0) & (times <= TIME_US_MAX)))


def _valid_parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows that are valid, by halving what is not; of rows in which too much is wrong, those
    that were found by then. Each try takes as long as all of a nested column.
    """
    pending, tries = [batch], 0
    while pending and tries < _TRIES_MAX:
        part = pending.pop()
        tries += 1
        try:
            part.validate(full=True)
        except (pa.ArrowException, ValueError):
            if part.num_rows > 1:
                half = part.num_rows // 2
                pending += [part.slice(half), part.slice(0, half)]
        else:
            yield part


def _batch(body: pa.RecordBatch, guess: _Guess, versions: SchemaVersions) -> Batch:
    if not guess.carried:
        # Where rows are missing, the numbers of the others are not known exactly.
        keys = int64_values(body.column(0))
        is_whole = len(keys) == guess.rows and guess.first_seq
        seqs = np.arange(len(keys), dtype=np.int64) + guess.first_seq if is_whole else None
        body = join_body(
            keys,
            body.remove_column(0),
            seqs=np.zeros(len(keys), np.int64) if seqs is None else seqs,
            times=np.full(len(keys), guess.time_us, np.int64),
        )
    return Batch(project(body, versions.body(versions.newest_fingerprint, carried=True)))
