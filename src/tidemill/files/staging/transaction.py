"""Transactions: rows that many processes wrote, made readable in one step and only once.

    tasks, on any machine     stage their rows, each attempt under a name of its own
    whoever commits           takes exactly the attempts it is told of, in the order of their
                              partitions, and stores them with a mark: the transaction's id, its
                              number, and what was in it

Only the last number of an id is remembered. The same number again changes nothing; a lower one is
refused, because skipping it in silence would lose rows, and writing it would repeat them. So is the
same number of another run, whose numbers began anew.

Invariant: rows and mark are one operation. Until then nobody sees anything of what was staged, and
what is never committed is swept away.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
from xxhash import xxh3_128

from tidemill.errors import InvalidInput, StagingLost, TransactionRewound
from tidemill.files.state.log_state import Mark
from tidemill.limits import INT64_MAX, STAGED_CHUNK_BYTES
from tidemill.names import check_name
from tidemill.shown import shown

logger = logging.getLogger(__name__)

_DIGEST_BYTES = 16  # of a mark's; behind them is the run's


class Transaction(NamedTuple):
    """Who commits, and the how-manieth time: the numbers of an id grow, and may skip."""

    id: str
    number: int
    after: int | None = None  # the number it has to follow, -1: none; None: any that is lower
    run: bytes = b""  # 16 bytes: to which run it belongs, or nothing; see `run_of`

    def checked(self) -> Transaction:
        """The same, if it can be one.

        >>> Transaction("daily-load", -1).checked()
        Traceback (most recent call last):
        tidemill.errors.InvalidInput: a transaction's number is a whole number from 0 on, not -1
        """
        check_name(self.id, what="transaction")
        if type(self.number) is not int or not 0 <= self.number <= INT64_MAX:
            raise InvalidInput(
                f"a transaction's number is a whole number from 0 on, not {shown(self.number)}"
            )
        return self


class StagedPart(NamedTuple):
    """What one attempt at one partition has staged: plain, so that it can travel."""

    partition: int
    name: str  # of the attempt
    frames: int
    rows: int
    total_bytes: int
    digest: bytes  # of all its frames


class Outcome(NamedTuple):
    """What became of a transaction; `first` > `last` if it had no rows."""

    first: int
    last: int
    is_new: bool  # False: it had been committed before, and nothing was changed

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


class Attempt(ABC):
    """One attempt at staging the rows of one partition. Ends with `finish` or `discard`."""

    def __init__(self) -> None:
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._is_whole = True  # all that was written is there, or waits

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows behind those before. If it raises, the attempt can only be discarded."""
        self._enter()
        rows, size = batch.num_rows, batch.nbytes
        # What fits into a core's own memory is sorted, encoded and later copied far faster.
        parts = max(min(size // STAGED_CHUNK_BYTES, rows), 1)
        for part in range(parts):
            start, stop = rows * part // parts, rows * (part + 1) // parts
            if stop > start:
                self._gather(batch.slice(start, stop - start), size // parts)
        self._is_whole = True

    def _gather(self, batch: pa.RecordBatch, size: int) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += size
        if self._waiting_bytes >= STAGED_CHUNK_BYTES:
            self._flush()

    def finish(self) -> StagedPart:
        """Make it last, and say what to commit."""
        self._enter()
        self._flush()
        return self._finish()

    @abstractmethod
    def discard(self) -> None:
        """Take away what was staged; what cannot be, is swept later."""

    @abstractmethod
    def _stage(self, batch: pa.RecordBatch) -> None: ...

    @abstractmethod
    def _finish(self) -> StagedPart: ...

    def _enter(self) -> None:
        """Nothing follows a call that broke off: how much of its rows is staged is not known."""
        if not self._is_whole:
            raise StagingLost(
                "an attempt at staging rows failed, or was finished, and cannot go on: discard "
                "it, and stage the rows of its partition again"
            )
        self._is_whole = False

    def _flush(self) -> None:
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if waiting:
            # Many small frames would stay small for ever.
            self._stage(waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting))


class Staging(ABC):
    """Where the rows of one user of transactions wait: `name` is the id of its transaction, or
    anything that nobody else has, starting with a dot, if it has none.
    """

    @abstractmethod
    def attempt(self, partition: int) -> Attempt:
        """Begin to stage rows. Attempts at the same partition do not know of each other."""

    @abstractmethod
    def commit(self, transaction: Transaction | None, parts: Sequence[StagedPart]) -> Outcome:
        """Make the rows of these attempts readable, in the order of their partitions, once.

        Without a transaction nothing is remembered, and the same parts cannot be committed again.
        Raises `TransactionRewound` if a higher number is committed, `StagingLost` if what was
        staged is not there as reported; nothing is changed then. What else was staged under this
        name is swept away afterwards.
        """

    @abstractmethod
    def committed(self, transaction_id: str) -> Mark | None:
        """What was committed last under an id; None if nothing was. A commit that is under way is
        waited for, or loses its right.
        """

    @abstractmethod
    def seen(self, transaction_id: str) -> Mark | None:
        """What was committed last under an id, by looking alone: whoever commits is neither waited
        for nor kept from it.
        """

    @abstractmethod
    def sweep(self) -> None:
        """Take away all that is staged under this name, and what others left long ago."""


def outcome_of(
    mark: Mark | None, transaction: Transaction, parts: Sequence[StagedPart] = ()
) -> Outcome | None:
    """What became of a transaction that was committed before; None if it was not.

    `parts` are what is not committed again; it is told if they are not what was committed then.

    >>> mark = Mark("daily-load", 7, 1, 10)
    >>> outcome_of(mark, Transaction("daily-load", 8)) is None
    True
    >>> outcome_of(mark, Transaction("daily-load", 7))
    Outcome(first=1, last=10, is_new=False)
    >>> outcome_of(mark, Transaction("daily-load", 0))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidemill.errors.TransactionRewound: number 0 of transaction 'daily-load' comes after 7 ...
    >>> outcome_of(mark, Transaction("daily-load", 9, after=6))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidemill.errors.TransactionRewound: number 9 of transaction 'daily-load' was to follow 6, ...
    """
    last = -1 if mark is None else mark.number
    if mark is None or transaction.number > last:
        if transaction.after not in (None, last):
            raise TransactionRewound(
                f"number {transaction.number} of transaction {transaction.id!r} was to follow "
                f"{transaction.after}, and {last} was committed last: another process has gone on "
                "with it; nothing was written",
                last=last,
            )
        return None
    if transaction.number < mark.number:
        raise TransactionRewound(
            f"number {transaction.number} of transaction {transaction.id!r} comes after "
            f"{mark.number} was committed: its numbers began anew (was the checkpoint deleted?), "
            "or another process has gone further; give it a new id if its rows are to be "
            "written again",
            last=mark.number,
        )
    run = mark.digest[_DIGEST_BYTES:]
    if run and transaction.run and run != transaction.run:
        raise TransactionRewound(
            f"number {transaction.number} of transaction {transaction.id!r} was committed by "
            "another run: its numbers began anew (was the checkpoint or the state deleted?); give "
            "it a new id if its rows are to be written again",
            last=mark.number,
        )
    if parts and mark.digest and mark.digest[:_DIGEST_BYTES] != digest_of(parts):
        logger.warning(
            "transaction %r has committed number %d with other rows (%d then, %d now), so that "
            "these are not written: two writes of one number need two ids",
            *(transaction.id, transaction.number, mark.last - mark.first + 1),
            sum(part.rows for part in parts),
        )
    return Outcome(mark.first, mark.last, is_new=False)


def mark_of(transaction: Transaction, first: int, parts: Sequence[StagedPart]) -> Mark:
    """What is to be stored with the rows, which begin at `first`."""
    rows = sum(part.rows for part in parts)
    digest = digest_of(parts) + transaction.run
    return Mark(transaction.id, transaction.number, first, first + rows - 1, digest)


def run_of(name: str | None) -> bytes:
    """What tells one run from another, by its name: 16 bytes, or none.

    >>> len(run_of("5f0a")), run_of(None)
    (16, b'')
    """
    return b"" if not name else xxh3_128(name.encode()).digest()


def digest_of(parts: Sequence[StagedPart]) -> bytes:
    """What tells one set of rows from another: 16 bytes."""
    return xxh3_128(b"".join(part.digest for part in parts)).digest()


def in_order(parts: Sequence[StagedPart]) -> list[StagedPart]:
    """The parts by partition; of each there must be one.

    >>> in_order([StagedPart(1, "b", 0, 0, 0, b""), StagedPart(0, "a", 0, 0, 0, b"")])[0].name
    'a'
    """
    parts = sorted(parts, key=lambda part: part.partition)
    for one, other in pairwise(parts):
        if one.partition == other.partition:
            raise InvalidInput(
                f"partition {one.partition} comes twice: as {one.name!r} and {other.name!r}"
            )
    return parts


def lost(part: StagedPart, where: str, why: str) -> StagingLost:
    """The error for a part that is not there as it was reported."""
    return StagingLost(
        f"the rows that {part.name!r} staged for partition {part.partition} in {where} {why}: "
        "another process with the same transaction id has swept them, or somebody removed them; "
        "nothing was committed, so run it again"
    )
