"""Short ways to write and read through the contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tidemill.batch import DEFAULT, fingerprint, to_payload
from tidemill.log.contract import LogFrame, LogStore, LogWriter, Mark, Reservation
from tidemill.log.frames import encode_rows


def frames_of(rows: object, schema: pa.Schema = DEFAULT) -> list[LogFrame]:
    return encode_rows(to_payload(rows, schema=schema), fingerprint(schema), bytes_max=2**20)


def append(
    writer: LogWriter,
    rows: Sequence[Any],
    marks: Sequence[Mark] = (),
    *,
    schema: pa.Schema = DEFAULT,
    lane: int = 0,
) -> Reservation:
    reservation = writer.reserve(len(rows))
    writer.append(lane, reservation, frames_of(list(rows), schema) if rows else [], marks)
    return reservation


def append_by_turns(writer: LogWriter, batches: Sequence[Sequence[Any]]) -> None:
    """One append each, in whatever lane comes next; so that readers have lanes to merge."""
    for number, rows in enumerate(batches):
        append(writer, rows, lane=5 * number % 7 % writer.lanes)


def read_all(store: LogStore, start: int | None = None, *, rows_max: int = 1_000) -> list[Any]:
    """All rows from `start` on, after checking that their numbers are dense."""
    at = store.ends().first if start is None else start
    rows: list[Any] = []
    while batches := store.read(at, rows_max=rows_max, bytes_max=2**20):
        for batch in batches:
            assert batch.first_seq == at
            assert len(batch) > 0
            at = batch.next_seq
            rows += batch.rows()
    return rows
