"""The replay as its driver runs it.

    mark of the target: rows up to 9,000 are done
    rows 9,001 … 17,500 ──▶ filter ──▶ staged by tasks ──▶ one transaction, mark: up to 17,500 ──▶ …

The number of a transaction is that of the last row that it deals with, so that the target itself
tells how far a replay has come, whatever killed it, and nothing is written down elsewhere. Each
transaction says which one it follows; of two drivers with the same replay one is refused.

Invariant: a row that is wanted is in the target once as soon as the mark is at it or behind it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from tidemill.errors import Fenced, InvalidInput, NotAQueue, TransactionRewound
from tidemill.files.staging.transaction import Outcome, StagedPart, Transaction
from tidemill.limits import REPLAY_ROUND_BYTES, REPLAY_ROUND_ROWS, TRANSACTION_BYTES_MAX
from tidemill.names import check_name
from tidemill.spark.address import Address, find, folder_of
from tidemill.spark.pipelines.failures import failed
from tidemill.spark.reading import Between
from tidemill.spark.replaying.choice import Choice, check_filter
from tidemill.spark.sink.options import KINDS, SinkOptions
from tidemill.spark.sink.parts import staged
from tidemill.spark.sink.target import Target
from tidemill.spark.source.planning import plan
from tidemill.spark.source.rows import open_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a replay has done: rows of the target from `first` to `last`, none if that is less."""

    rows: int
    first: int
    last: int
    transactions: int
    upto: int  # the last row of the source that is dealt with, by this call or one before


def replay(
    spark: SparkSession,
    source: str | os.PathLike[str],  # a log, a priority queue, or the archive of a log
    target: str | os.PathLike[str],
    *,
    seqs: Between[int] = None,  # (least, greatest), either of which may be None
    keys: Between[int] = None,  # of a queue
    times: Between[datetime] = None,
    where: str | None = None,  # SQL over the columns of `tidemill.spark.read`
    key: str | None = None,  # into a queue: the column to order by; into a log: it takes the key
    kind: str | None = None,  # of a target that is made: "log" (None) or "queue"
    name: str = "replay",  # tells apart replays of the same rows to the same target
    on_progress: Callable[[int, float], None] = lambda rows, share: None,  # noqa: ARG005
) -> Replayed:
    """Send rows of a log, or what is left of a queue, to another queue or log once more.

    Rows come in the order of their numbers; only what lies within the bounds is read, archived
    rows by Spark's own Parquet reader. A target that is not there is made.

    Each row is replayed once: after whatever killed it, the same call goes on where it was, and
    once it is through it takes what has come since, if no end was given. The arguments and `name`
    tell which replay it is. `on_progress` is told the rows so far and the share that is done.

    >>> import tempfile, tidemill as tm
    >>> from tidemill.spark import replay, session
    >>> folder = tempfile.mkdtemp()
    >>> with tm.Log(f"{folder}/orders") as log, log.publisher() as out:
    ...     receipt = out.send([b"a", b"b", b"c", b"d"])
    >>> spark = session(master="local[1]")
    >>> replay(spark, f"{folder}/orders", f"{folder}/again", seqs=(2, None), where="value != 'c'")
    Replayed(rows=2, first=1, last=2, transactions=1, upto=4)
    >>> replay(spark, f"{folder}/orders", f"{folder}/again", seqs=(2, None), where="value != 'c'")
    Replayed(rows=0, first=1, last=0, transactions=0, upto=4)
    >>> with tm.Log(f"{folder}/again") as log:
    ...     log.read().rows()
    [b'b', b'd']
    >>> spark.stop()
    """
    address, url = find(os.fspath(source)), os.fspath(target)
    choice = Choice(source=address, seqs=seqs, keys=keys, times=times, where=where, key=key)
    replay_id = check_name(f"{name}-{choice.checked().digest}", what="replay")
    if kind not in (None, *KINDS):
        raise InvalidInput(f"kind is {' or '.join(KINDS)}, not {kind!r}")
    into = _kind_of(url) or kind or "log"
    if not choice.has_end and _is_same(address, url):
        raise InvalidInput(
            f"{address.place} would be replayed into itself for ever: say where to end"
        )
    start, _ = choice.range(None)
    try:
        unfiltered = Choice(source=address).rows(spark, start, start)  # No row, but all columns.
        if where is not None:
            check_filter(unfiltered, where)
        shaped = choice.shaped(unfiltered, into_queue=into == "queue")
    except PySparkException as error:
        raise failed(error, address.place, None, job="replay of") from error
    options = SinkOptions(path=url, kind=kind, key=key if into == "queue" else None)
    prepared = Target.prepare(options, shaped.schema)
    return _Driver(spark, choice, prepared, replay_id, shaped.columns).run(on_progress)


class _Driver:
    """One replay into a target that is there."""

    def __init__(
        self,
        spark: SparkSession,
        choice: Choice,
        target: Target,
        replay_id: str,
        columns: list[str],  # as of when it began, whatever the source gains
    ) -> None:
        self._spark = spark
        self._choice = choice
        self._target = target
        self._id = replay_id
        self._columns = columns
        self._staging = target.staging(replay_id)

    def run(self, on_progress: Callable[[int, float], None]) -> Replayed:
        """Replay from the last row that is done to the end."""
        mark = self._staging.committed(self._id)
        after = -1 if mark is None else mark.number
        start, end = begin, _ = self._choice.range(None if mark is None else after)
        done: list[Outcome] = []
        round_bytes, round_rows = REPLAY_ROUND_BYTES, REPLAY_ROUND_ROWS
        while start < end:
            with open_rows(self._choice.source, fail_on_loss=True) as rows:
                layout = rows.layout(start, end)
            rounds = plan(layout, start, end, task_bytes=round_bytes, task_rows=round_rows)
            for first, behind in rounds:
                parts = self._stage(first, behind)
                is_large = sum(part.total_bytes for part in parts) > TRANSACTION_BYTES_MAX
                if is_large and behind - first > 1:
                    # What is stored is compressed, and what is staged is not.
                    round_bytes, round_rows = max(round_bytes // 2, 1), (behind - first) // 2
                    break
                done.append(self._commit(parts, behind - 1, after))
                start, after = behind, behind - 1
                on_progress(
                    sum(one.rows for one in done if one.is_new), (start - begin) / (end - begin)
                )
        # What is not new, another process has replayed in this moment.
        some = [one for one in done if one.rows and one.is_new]
        return Replayed(
            sum(one.rows for one in some),
            some[0].first if some else 1,
            some[-1].last if some else 0,
            len(done),
            max(after, 0),
        )

    def _stage(self, start: int, end: int) -> list[StagedPart]:
        """Have the rows of a round staged by tasks of Spark."""
        try:
            rows = self._choice.rows(self._spark, start, end)
            shaped = self._choice.shaped(rows, into_queue=self._target.is_queue)
            chosen = shaped.select(
                *(shaped[f"`{one.replace('`', '``')}`"] for one in self._columns)
            )
            return staged(chosen, self._target, self._id)
        except PySparkException as error:
            place = self._choice.source.place
            raise failed(error, place, None, "a task", job="replay of") from error

    def _commit(self, parts: list[StagedPart], upto: int, after: int) -> Outcome:
        try:
            return self._staging.commit(Transaction(self._id, upto, after), parts)
        except TransactionRewound as error:
            raise Fenced(
                f"another process runs the same replay of {self._choice.source.place}, and is at "
                f"row {error.last}: wait for it, or give this one another name"
            ) from error


def _kind_of(url: str) -> str | None:
    """What is at the target; None if nothing is."""
    try:
        return find(url).kind
    except NotAQueue:
        return None


def _is_same(source: Address, target: str) -> bool:
    return source.url == str(folder_of(target) or target)
