"""The merge as its driver runs it.

    note: sources, up to which arrival
    ┌▶ tasks stage the next 1 GiB of keys ──▶ note: up to which key ──▶ one transaction of the log
    └── note: done ◀── the queues give up those keys ◀────────────────────────┘

After a crash at any point the next merge goes on from the note. Whether the transaction that was
under way is in the log, its mark says; whether the queues gave up its keys does not matter, because
they do it again.

Invariant: queues give up what the log has durably, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException

from tidemill.errors import InvalidInput, NotAQueue
from tidemill.files.disk.filesystem import LocalFileSystem
from tidemill.files.format.settings import QUEUE
from tidemill.files.staging.folder_staging import settings_of
from tidemill.files.staging.transaction import StagedPart, Transaction
from tidemill.limits import (
    INT64_MIN,
    MERGE_RANGE_BYTES,
    MERGE_ROUND_BYTES,
    TRANSACTION_BYTES_MAX,
)
from tidemill.log.contract import LogStore
from tidemill.log.opening import open_store
from tidemill.names import check_name
from tidemill.spark.address import folder_of
from tidemill.spark.merging.memo import Memo, Memory
from tidemill.spark.merging.queues import OwnedQueues
from tidemill.spark.merging.ranges import KeyRange
from tidemill.spark.merging.task import Columns, MergeTask
from tidemill.spark.pipelines.failures import failed
from tidemill.spark.schema import spark_schema
from tidemill.spark.sink.options import SinkOptions
from tidemill.spark.sink.parts import PART, collected, told
from tidemill.spark.sink.target import Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge has done: rows of the log from `first` to `last`, none if that is less."""

    rows: int
    first: int
    last: int
    transactions: int

    @classmethod
    def of_all(cls, several: Sequence[Merged]) -> Merged:
        """Several, one after the other, as one.

        >>> Merged.of_all([Merged(2, 1, 2, 1), Merged(1, 3, 3, 1)])
        Merged(rows=3, first=1, last=3, transactions=2)
        """
        some = [one for one in several if one.rows]
        if not some:
            return cls(0, 1, 0, 0)
        return cls(
            sum(one.rows for one in some),
            some[0].first,
            some[-1].last,
            sum(one.transactions for one in some),
        )


def merge(
    spark: SparkSession,
    sources: Sequence[str | Path],
    log: str | Path,
    *,
    key: str | None = "item_key",
    origin: str | None = None,
    name: str = "merge",
    on_progress: Callable[[int, float], None] = lambda rows, share: None,  # noqa: ARG005
) -> Merged:
    """Move all items of priority queues to a log, in the order of their keys.

    Equal keys come in the order of the queues, then in that of their arrival. The log gets the
    payload's columns, the item's key as the column `key` (None: without), and the name of the
    queue's folder as the column `origin`, if one is named. A log that is not there is made.

    Each item is moved once: a merge that was interrupted is finished by the next one of the same
    name into the same log, whatever killed it. Nobody else can use the queues meanwhile, and what
    their other forks hold stays. `on_progress` is told the rows so far and their share of all.

    >>> from tidemill.spark import merge, session
    >>> merge(session(), ["edge-1/", "edge-2/"], "all/")  # doctest: +SKIP
    Merged(rows=2000000, first=1, last=2000000, transactions=1)
    """
    check_name(name, what="transaction")
    paths = queue_folders(sources)
    done: list[Merged] = []

    def run(paths: Sequence[Path], names: tuple[str | None, str | None]) -> None:
        with closing(OwnedQueues(paths)) as queues:
            columns = _columns(queues.columns(), *names)
            options = SinkOptions(path=str(log), kind="log", merge_schema=True)
            target = Target.prepare(options, spark_schema(columns.schema))
            with open_store(target.address, schema=None, create=False) as store:
                driver = _Driver(spark, queues, columns, target, store, name)
                done.append(driver.run(on_progress))

    before = _interrupted(str(log), name)
    if before is not None:
        run([Path(path) for path, _ in before.sources], (before.key, before.origin))
    run(paths, (key, origin))
    return Merged.of_all(done)


class _Driver:
    """One merge of queues that are ours."""

    def __init__(
        self,
        spark: SparkSession,
        queues: OwnedQueues,
        columns: Columns,
        target: Target,
        store: LogStore,
        name: str,
    ) -> None:
        self._spark = spark
        self._queues = queues
        self._columns = columns
        self._target = target
        self._store = store
        self._name = name
        self._memory = Memory(store, name)
        self._staging = target.staging(name)

    def run(self, on_progress: Callable[[int, float], None]) -> Merged:
        """Merge from the last step that was written down to the end."""
        memory, queues = self._memory, self._queues
        if memory.memo.finished:
            memory.write(
                sources=queues.last_arrivals,
                key=self._columns.key,
                origin=self._columns.origin,
                upto=None,
                done=None,
                finished=False,
            )
        elif memory.memo.upto is not None and self._is_committed(memory.memo.number):
            self._give_up(memory.memo.upto)
        queues.look([last for _, last in memory.memo.sources])
        ranges = queues.ranges(memory.memo.done, MERGE_RANGE_BYTES)
        total_bytes, round_bytes = sum(size for _, size in ranges), MERGE_ROUND_BYTES
        done: list[Merged] = []
        at = 0
        while at < len(ranges):
            end = _end_of_round(ranges, at, round_bytes)
            queues.keep()
            parts = self._stage([keys for keys, _ in ranges[at:end]])
            if sum(part.total_bytes for part in parts) > TRANSACTION_BYTES_MAX and end - at > 1:
                # The queues are compressed, and the log is not.
                round_bytes //= 2
                continue
            done.append(self._commit(ranges[end - 1][0].high, parts))
            at = end
            merged_bytes = sum(size for _, size in ranges[:at])
            on_progress(Merged.of_all(done).rows, merged_bytes / total_bytes)
        memory.write(finished=True)
        return Merged.of_all(done)

    def _stage(self, ranges: Sequence[KeyRange]) -> list[StagedPart]:
        """Have the items of these ranges staged by tasks of Spark, one each."""
        tasks = [
            MergeTask(keys, self._queues.parts(keys), self._columns, self._target, self._name)
            for keys in ranges
        ]
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        try:
            return collected(numbers.mapInArrow(_Work(tasks), PART))
        except PySparkException as error:
            place = self._store.place
            raise failed(error, place, None, "a task", job="merge into") from error

    def _commit(self, upto: int, parts: list[StagedPart]) -> Merged:
        """Make what was staged readable, and have the queues give it up."""
        memo = self._memory.write(number=self._memory.memo.number + 1, upto=upto)
        outcome = self._staging.commit(Transaction(self._name, memo.number), parts)
        self._give_up(upto)
        return Merged(outcome.rows, outcome.first, outcome.last, 1)

    def _give_up(self, upto: int) -> None:
        lasts = [last for _, last in self._memory.memo.sources]
        self._queues.give_up(KeyRange(INT64_MIN, upto), lasts)
        self._memory.write(done=upto, upto=None)

    def _is_committed(self, number: int) -> bool:
        # Who claims the log fences a driver that was cut off and might commit still.
        with closing(self._store.claim()) as writer:
            mark = writer.mark(self._name)
        return mark is not None and mark.number == number


@dataclass(frozen=True, slots=True)
class _Work:
    """What Spark calls in each partition, which holds the number of one task."""

    tasks: list[MergeTask]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield told(self.tasks[number].run(number))


def _interrupted(log: str, name: str) -> Memo | None:
    """The merge that was not finished, if there is one."""
    try:
        with open_store(folder_of(log) or log, schema=None, create=False) as store:
            memo = Memory(store, name).memo
    except NotAQueue:
        return None
    return None if memo.finished else memo


def queue_folders(sources: Sequence[str | Path]) -> list[Path]:
    """The folders in full; refuses what holds no queue."""
    paths = [_folder(source) for source in sources]
    if not paths:
        raise InvalidInput("there is nothing to merge: name the folders of some queues")
    for path in paths:
        if paths.count(path) > 1:
            raise InvalidInput(f"{path} is named twice")
        settings_of(LocalFileSystem(), path, QUEUE)
    return paths


def _folder(source: str | Path) -> Path:
    found = folder_of(str(source))
    if found is None:
        raise InvalidInput("priority queues live in folders; a log on a server is merged as it is")
    return found


def _columns(payload: pa.Schema, key: str | None, origin: str | None) -> Columns:
    """The columns of the log."""
    fields = list(payload)
    for name, kind in ((key, pa.int64()), (origin, pa.string())):
        if name is None:
            continue
        if any(field.name == name for field in fields):
            raise InvalidInput(f"the queues have a column {name!r} of their own: name another")
        fields.insert(0 if name == key else len(fields), pa.field(name, kind))
    return Columns(pa.schema(fields), key, origin)


def _end_of_round(ranges: Sequence[tuple[KeyRange, int]], start: int, round_bytes: int) -> int:
    """Up to which range a round goes: one at least."""
    end, size = start + 1, ranges[start][1]
    while end < len(ranges) and size + ranges[end][1] <= round_bytes:
        size += ranges[end][1]
        end += 1
    return end
