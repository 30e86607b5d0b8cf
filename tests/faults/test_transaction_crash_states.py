"""Whatever a crash leaves of the disk while transactions are staged and committed, carrying on with
the last one that was begun makes the output exact.

That is what Spark does: it notes what a batch is made of before it begins, and repeats the last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pytest

from tests.faults.checker import ACKNOWLEDGED, ATTEMPTED, bounds
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_log import forget_place, open_log
from tests.faults.driven_queue import ROOT as QUEUE
from tests.faults.driven_queue import StillClock, digest, open_queue
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Trace
from tests.log.contract.writing import append, read_all
from tidemill.errors import TidemillError
from tidemill.files.queue.queue_staging import QueueStaging
from tidemill.files.staging.transaction import Staging, Transaction
from tidemill.log.on_files.staging import FileLogStaging
from tidemill.log.on_files.store import FileLog

LOG = Path("/queues/log")


class Job(ABC):
    """Writes numbered transactions of two partitions, and other rows in between."""

    def __init__(self, fs: MemoryFileSystem) -> None:
        self.fs = fs

    @abstractmethod
    def staging(self) -> Staging: ...

    @abstractmethod
    def batch(self, values: list[bytes]) -> pa.RecordBatch: ...

    @abstractmethod
    def make(self) -> None: ...

    @abstractmethod
    def write(self, values: list[bytes]) -> None:
        """Rows that belong to no transaction."""

    @abstractmethod
    def values(self) -> list[bytes]:
        """All rows that are there, in the order of writing."""

    def transact(self, number: int, *, length: int = 10) -> None:
        parts = []
        for partition, rows in enumerate(self.rows(number, length)):
            lost = self.staging().attempt(partition)
            lost.write(self.batch([b"of an attempt that was given up"]))
            lost.finish()
            attempt = self.staging().attempt(partition)
            for row in rows:
                attempt.write(self.batch([row]))
            parts.append(attempt.finish())
        self.staging().commit(Transaction("job", number), parts)

    @staticmethod
    def rows(number: int, length: int = 10) -> list[list[bytes]]:
        """The rows of each partition."""
        return [
            [f"{number}.{partition}.{row};".encode().ljust(length, b".") for row in range(2)]
            for partition in range(2)
        ]


class QueueJob(Job):
    def staging(self) -> Staging:
        return QueueStaging(QUEUE, "job", wait_s=0, file_system=self.fs, clock=StillClock())

    def batch(self, values: list[bytes]) -> pa.RecordBatch:
        # In two buckets, so that a transaction of theirs is several frames.
        keys = pa.array([250 if value.endswith(b"1") else 7 for value in values], pa.int64())
        return pa.record_batch({"key": keys, "value": pa.array(values, pa.binary())})

    def make(self) -> None:
        open_queue(self.fs).close()

    def write(self, values: list[bytes]) -> None:
        queue = open_queue(self.fs)
        queue.push(self.batch(values))
        queue.close()

    def values(self) -> list[bytes]:
        queue = open_queue(self.fs)
        batch = queue.peek(-1)
        queue.close()
        items = sorted(zip(batch.seqs.to_pylist(), batch.values.to_pylist(), strict=True))
        return [value for _, value in items]


class LogJob(Job):
    def staging(self) -> Staging:
        return FileLogStaging(LOG, "job", wait_s=0, file_system=self.fs, clock=StillClock())

    def batch(self, values: list[bytes]) -> pa.RecordBatch:
        return pa.record_batch({"value": pa.array(values, pa.binary())})

    def make(self) -> None:
        open_log(self.fs).close()

    def write(self, values: list[bytes]) -> None:
        with self._opened() as log:
            append(log.claim(), values)

    def values(self) -> list[bytes]:
        with self._opened() as log:
            log.claim()
            return read_all(log)

    def _opened(self) -> FileLog:
        forget_place(self.fs)
        return open_log(self.fs)


Tally: TypeAlias = Callable[[str, int], None]
# A number is a transaction; "roll" one that fills segments; "write" rows of somebody else.
Steps: TypeAlias = tuple[int | str, ...]
STEPS: list[Steps] = [(1,), (1, 2), ("roll", 2), (1, "write"), ("write", 1), (1, 1)]


def run(job: Job, steps: Iterable[int | str]) -> list[bytes]:
    """Do the steps; gives back the rows that they lead to. Done steps are marked in the trace."""
    rows: list[bytes] = []
    done: set[int] = set()
    for place, step in enumerate(steps):
        job.fs.mark(ATTEMPTED, place + 1, promise=False)
        if step == "write":
            job.write([b"of another"])
            rows.append(b"of another")
        else:
            number, length = (1, 5_000) if step == "roll" else (int(step), 10)
            job.transact(number, length=length)
            if number not in done:
                rows += [row for part in job.rows(number, length) for row in part]
            done.add(number)
        job.fs.mark(ACKNOWLEDGED, place + 1)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize("kind", [QueueJob, LogJob])
@pytest.mark.parametrize("steps", STEPS, ids=repr)
def test_what_is_repeated_after_a_crash_is_there_once(
    kind: type[Job], steps: Steps, tally: Tally
) -> None:
    _judge(kind, steps, budget=14, tally=tally)


@pytest.mark.parametrize("kind", [QueueJob, LogJob])
def test_a_sample_of_crashes_while_a_transaction_is_committed(
    kind: type[Job], tally: Tally
) -> None:
    _judge(kind, (1,), budget=1, tally=tally)


def _judge(kind: type[Job], steps: Steps, *, budget: int, tally: Tally) -> None:
    job = kind(MemoryFileSystem())
    job.make()
    before = run(job, (0,))
    job.fs.trace = Trace(job.fs.image())
    expected = before + run(job, steps)
    judged: set[bytes] = set()
    outcomes: set[int] = set()
    for state in enumerate_states(job.fs.trace, budget=budget):
        acknowledged, attempted = bounds(state.marks)
        key = digest(state.image) + repr((acknowledged, attempted)).encode()
        if key in judged:
            continue
        judged.add(key)
        after = kind(state.file_system())
        try:
            found = after.values()
            assert found == expected[: len(found)], "something is missing, or out of order"
            outcomes.add(len(found))
            rest = _left(steps, attempted, found[len(before) :])
            run(after, rest)
            assert after.values() == expected
        except (AssertionError, TidemillError) as problem:
            raise AssertionError(f"{kind.__name__}, {steps}: {problem}\n{state.describe()}") from (
                problem
            )
    assert len(judged) > 20
    assert len(outcomes) > 1
    tally(f"crash states of transactions, {kind.__name__}", len(judged))
    tally("crash states in all", len(judged))


def _left(steps: Steps, attempted: int, found: list[bytes]) -> Steps:
    """What a job does that starts again: the last step that it began once more, which may have been
    confirmed to it or not, then the rest.

    Rows of others are not repeated once they are there: they have no transaction.
    """
    left = list(steps[max(attempted - 1, 0) :])
    if b"of another" in found and "write" in left:
        left.remove("write")
    return tuple(left)
