"""Transactions into a log on a server: frames wait in a table of their own until the commit.

    tasks           one row of `…_staging` for each frame, under the name of their attempt
    who commits     becomes the publisher, and in ONE transaction moves the writer pointer, copies
                    the frames into the shards with their numbers, stores the mark, and removes
                    what was staged

The bodies never leave the server while they are committed. Committing fences a publisher that is
open, as any new publisher does; those who commit transactions wait for one another.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import NamedTuple

import pyarrow as pa
from xxhash import xxh3_128

from tidemill.batch import HEADER_BYTES, FrameHeader, pack_header, to_payload, unpack_header
from tidemill.errors import Fenced, TidemillError
from tidemill.files.staging.transaction import (
    Attempt,
    Outcome,
    StagedPart,
    Staging,
    Transaction,
    in_order,
    lost,
    mark_of,
    outcome_of,
)
from tidemill.limits import FRAME_BODY_BYTES_MAX, OWNER_WAIT_S, STAGED_S_MAX
from tidemill.log.contract import LogFrame, Mark
from tidemill.log.frames import encode_rows
from tidemill.log.sql.address import Address
from tidemill.log.sql.badges import new_badge
from tidemill.log.sql.connection import Busy, Connection, Lost
from tidemill.log.sql.dialect import dialect_of
from tidemill.log.sql.marks import stored_mark
from tidemill.log.sql.statements import Statements
from tidemill.log.sql.store import RETRY_S, ServerLog
from tidemill.log.sql.under_way import Numbers
from tidemill.log.sql.writer import ServerWriter

logger = logging.getLogger(__name__)

_PACKET_SPARE_BYTES = 4096  # beside the body: the statement's other values, and the frame's header
_ROWS_PER_DELETE = 100
_TRIES_MAX = 5  # to become the publisher and stay it, until the rows are there


class ServerStaging(Staging):
    """What is staged for a log that is there."""

    def __init__(self, url: str, name: str, *, retry_s: float = RETRY_S) -> None:
        self._url = url
        self._name = name
        self._retry_s = retry_s

    def attempt(self, partition: int) -> Attempt:
        return _TableAttempt(self._opened(), self._name, partition)

    def commit(self, transaction: Transaction | None, parts: Sequence[StagedPart]) -> Outcome:
        parts = in_order(parts)
        if transaction is not None:
            transaction.checked()
        with self._opened() as log, _turn(Address.parse(self._url)):
            for tries_left in reversed(range(_TRIES_MAX)):
                writer = log.claim()
                try:
                    outcome = _Commit(log, writer, parts).run(transaction)
                    break
                except Fenced:
                    # Somebody else became the publisher meanwhile, and nothing is written.
                    if not tries_left:
                        raise
                finally:
                    writer.close()
            _sweep(log, self._name)
        return outcome

    def committed(self, transaction_id: str) -> Mark | None:
        with self._opened() as log, closing(log.claim()) as writer:
            return writer.mark(transaction_id)

    def seen(self, transaction_id: str) -> Mark | None:
        with self._opened() as log:
            return log.run(lambda found: stored_mark(found, log.statements, transaction_id))

    def sweep(self) -> None:
        with self._opened() as log:
            _sweep(log, self._name)

    def _opened(self) -> ServerLog:
        return ServerLog(self._url, create=False, retry_s=self._retry_s)


class _TableAttempt(Attempt):
    """Rows of the staging table with a name that only this attempt has."""

    def __init__(self, log: ServerLog, name: str, partition: int) -> None:
        super().__init__()
        self._log = log
        self._name = name.encode()
        self._partition = partition
        self._attempt = secrets.token_hex(16)
        self._digest = xxh3_128()
        self._frames = self._rows = self._bytes = 0
        settings = log.settings()
        self._bytes_max = min(settings.packet_bytes_max - _PACKET_SPARE_BYTES, FRAME_BODY_BYTES_MAX)
        self._setting = settings.packet_advice

    def discard(self) -> None:
        try:
            statement = self._log.statements.unstage
            self._log.run(lambda connection: connection.execute(statement, self._attempt.encode()))
        except TidemillError as error:
            logger.warning("rows staged as %s are left to be swept: %s", self._attempt, error)
        finally:
            self._log.close()

    def _stage(self, batch: pa.RecordBatch) -> None:
        versions = self._log.versions
        payload = to_payload(batch, schema=versions.newest)
        for frame in encode_rows(
            payload,
            versions.newest_fingerprint,
            bytes_max=self._bytes_max,
            setting=self._setting,
        ):
            self._write(frame)

    def _write(self, frame: LogFrame) -> None:
        body = frame.body
        header = _header(frame.fingerprint, body.body_bytes, body.check, body.codec, body.rows)
        values = (
            self._attempt.encode(),
            self._frames,
            self._name,
            header,
            [memoryview(body.buffer)],
        )
        statement = self._log.statements.stage
        self._log.run(lambda connection: connection.execute_prepared(statement, values))
        self._digest.update(header)
        self._frames += 1
        self._rows += body.rows
        self._bytes += HEADER_BYTES + body.body_bytes

    def _finish(self) -> StagedPart:
        self._log.close()
        return StagedPart(
            self._partition,
            self._attempt,
            self._frames,
            self._rows,
            self._bytes,
            self._digest.digest(),
        )


class _Staged(NamedTuple):
    """A frame in the staging table."""

    attempt: bytes
    number: int
    header: FrameHeader


class _Commit:
    """One try at a commit, under one epoch."""

    def __init__(self, log: ServerLog, writer: ServerWriter, parts: Sequence[StagedPart]) -> None:
        self._log = log
        self._writer = writer
        self._parts = parts

    def run(self, transaction: Transaction | None) -> Outcome:
        writer, parts = self._writer, self._parts
        if transaction is not None:
            before = outcome_of(writer.mark(transaction.id), transaction, parts)
            if before is not None:
                return before
        frames = [frame for part in parts for frame in self._staged(part)]
        numbers = writer.reserve(sum(part.rows for part in parts))
        marks = [] if transaction is None else [mark_of(transaction, numbers.first, parts)]

        def publish(connection: Connection) -> None:
            self._publish(connection, numbers, frames)

        try:
            writer.append(0, numbers, (), marks, also=publish)
        except Fenced:
            # A mark tells; without one, that what was staged went in the same transaction does.
            if transaction is not None or not frames or not self._is_unstaged(frames[0]):
                raise
        return Outcome(numbers.first, numbers.last, is_new=True)

    def _staged(self, part: StagedPart) -> list[_Staged]:
        """What is staged of a part, without the bodies, checked against what was reported."""
        if not part.frames:
            return []
        attempt = part.name.encode()
        statement = self._log.statements.staged
        rows = self._log.run(lambda connection: connection.query(statement, attempt))
        if not rows:
            raise lost(part, self._log.place, "are gone")
        headers = [bytes(header) for _, header in rows]
        if xxh3_128(b"".join(headers)).digest() != part.digest:
            raise lost(part, self._log.place, "are others than those reported")
        return [
            _Staged(attempt, int(number), unpack_header(header))
            for (number, _), header in zip(rows, headers, strict=True)
        ]

    def _publish(self, connection: Connection, numbers: Numbers, frames: Sequence[_Staged]) -> None:
        """Copy the frames into the shards; part of the transaction that moves the pointer."""
        statements, first = self._log.statements, numbers.first
        for turn, (attempt, number, header) in enumerate(frames):
            packed = _header(
                header.fingerprint,
                header.body_bytes,
                header.body_check,
                header.codec,
                header.rows,
                first_seq=first,
                time_us=numbers.time_us,
            )
            last = first + header.rows - 1
            values = (
                first,
                last,
                self._writer.epoch,
                numbers.time_us,
                HEADER_BYTES + header.body_bytes,
                packed,
                attempt,
                number,
            )
            statement = statements.publish[turn % len(statements.publish)]
            if connection.execute_prepared(statement, values) != 1:
                part = next(one for one in self._parts if one.name.encode() == attempt)
                raise lost(part, self._log.place, "are gone")
            first = last + 1
        for part in self._parts:
            if part.frames:
                connection.execute(statements.unstage, part.name.encode())

    def _is_unstaged(self, frame: _Staged) -> bool:
        statement = self._log.statements.staged
        return not self._log.run(lambda connection: connection.query(statement, frame.attempt))


def _header(
    fingerprint: int,
    body_bytes: int,
    check: int,
    codec: int,
    rows: int,
    *,
    first_seq: int = 0,
    time_us: int = 0,
) -> bytes:
    return pack_header(rows, first_seq, 0, 0, time_us, fingerprint, body_bytes, check, codec)


@contextmanager
def _turn(address: Address) -> Iterator[None]:
    """Wait for others who commit to the same log, for a while: without it they would fence one
    another, and only lose time.
    """
    of_log = hashlib.sha256(f"{address.database}/{address.name}".encode()).hexdigest()
    connection = None
    try:
        try:
            connection = dialect_of(address).connect(address, new_badge())
            connection.take_lock(f"tidemill-commit:{of_log[:40]}", OWNER_WAIT_S)
        except (Lost, Busy) as error:
            logger.warning("committing without waiting for others: %s", error)
        yield
    finally:
        if connection is not None:
            connection.close()


def _sweep(log: ServerLog, name: str) -> None:
    """Remove what is staged under this name, and what others staged long ago. What cannot be
    removed does no harm but take room.
    """
    statements: Statements = log.statements

    def work(connection: Connection) -> None:
        for statement, which in (
            (statements.sweep, name.encode()),
            (statements.sweep_old, STAGED_S_MAX),
        ):
            while connection.execute(statement, which, _ROWS_PER_DELETE) == _ROWS_PER_DELETE:
                pass

    try:
        log.run(work)
    except TidemillError as error:
        logger.warning("rows staged for %s were not swept away: %s", log.place, error)
