"""Which rows are profiled, and one query after the other."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from tidemill.errors import InvalidInput
from tidemill.spark.address import Address, find
from tidemill.spark.pipelines.failures import failed
from tidemill.spark.profiling import measure
from tidemill.spark.profiling.profile import Profile
from tidemill.spark.profiling.values import UNITS, as_number, as_time
from tidemill.spark.reading import Between
from tidemill.spark.replaying.choice import Choice
from tidemill.spark.source.rows import open_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

_GIVEN = ("seq", "key", "time")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Keys between the years 2000 and 2100 in nanoseconds are taken for times.
_NS_LEAST, _NS_GREATEST = 946_684_800 * 10**9, 4_102_444_800 * 10**9


def profile(
    spark: SparkSession,
    source: str | os.PathLike[str],  # a log, a priority queue, or the archive of a log
    *,
    seqs: Between[int] = None,  # (least, greatest), either of which may be None
    times: Between[datetime] = None,
    key: str | None = None,  # a column of whole numbers or times; None: the keys of a queue
    event_time: str | None = None,  # a column; None: the keys of a queue, if they are times
    event_unit: str = "ns",  # of an event time that is a number: s, ms, us or ns
    duplicates: bool = True,  # whether to look for them, which takes two shuffles
    on_progress: Callable[[int, float], None] = lambda rows, share: None,  # noqa: ARG005
) -> Profile:
    """Tell what is in a queue, a log or an archive, counted by Spark.

    Rows, bytes and rates over time; of each column nulls, different values (about), the least and
    the greatest; where keys are missing, and which come twice; which payloads do; how late rows
    are, behind what came before them.

    >>> import tempfile, tidemill as tm
    >>> from tidemill.spark import profile, session
    >>> folder = tempfile.mkdtemp()
    >>> with tm.PriorityQueue(folder) as queue:
    ...     receipt = queue.push([(1, b"a"), (2, b"b"), (2, b"b"), (900, b"c")])
    >>> spark = session(master="local[1]")
    >>> found = profile(spark, folder)
    >>> found.rows, found.duplicates, found.key.duplicates, found.key.gaps[0]
    (4, 1, 1, Gap(after=2, before=900))
    >>> spark.stop()
    """
    if event_unit not in (*UNITS, "ns"):
        raise InvalidInput(f"event_unit is s, ms, us or ns, not {event_unit!r}")
    address = find(os.fspath(source))
    choice = Choice(source=address, seqs=seqs, times=times).checked()
    try:
        job = _Job(spark, choice, key, event_time, event_unit)
        return job.run(on_progress, duplicates=duplicates)
    except PySparkException as error:
        raise failed(error, address.place, None, "a query", job="profile of") from error


class _Job:
    """One profile."""

    def __init__(
        self,
        spark: SparkSession,
        choice: Choice,
        key: str | None,
        event_time: str | None,
        event_unit: str,
    ) -> None:
        start, end = choice.range(None)
        self._source = choice.source
        self._frame: DataFrame = choice.rows(spark, start, end)
        self._stored_bytes = _stored(choice.source, start, end)
        self._fields = [field for field in self._frame.schema if field.name not in _GIVEN]
        is_queue = choice.source.kind == "queue"
        self._key_field = self._field("key" if key is None and is_queue else key)
        self._event_field = self._field(event_time)
        self._is_guessed = event_time is None and key is None and is_queue
        # What cannot be a key or a time is refused before anything is read.
        self._key: tuple[Column, bool] | None = (
            None if self._key_field is None else as_number(self._key_field)
        )
        event = self._key_field if self._is_guessed else self._event_field
        self._event = None if event is None else as_time(event, event_unit)

    def run(self, on_progress: Callable[[int, float], None], *, duplicates: bool) -> Profile:
        """One query after the other."""
        key = self._key
        number = None if key is None else key[0]
        found = measure.totals(self._frame, self._fields, number, self._event)
        place, kind = self._source.place, self._source.kind
        if not found.rows or found.seq_first is None or found.time_first is None:
            return Profile(source=place, kind=kind)
        seq_last, time_last = found.seq_last or 0, found.time_last or 0
        steps = 4 + 2 * duplicates + (self._event is not None)
        done = 0

        def step() -> None:
            nonlocal done
            done += 1
            on_progress(found.rows, done / steps)

        step()
        columns = measure.columns(self._frame, self._fields)
        step()
        rates, rate_bytes = measure.rates(self._frame, self._fields, found.time_first, time_last)
        step()
        more: dict[str, Any] = {}
        if duplicates:
            more["duplicates"] = measure.repeated_payloads(self._frame, self._fields)
            step()
        if key is not None and self._key_field is not None:
            more["key"] = self._keys(found, duplicates=duplicates)
        step()
        notes = []
        if self._event is not None and self._has_events(found):
            column = (self._key_field if self._is_guessed else self._event_field) or None
            name = "" if column is None else column.name
            more["late"] = measure.late(self._frame, name, self._event, found)
        elif self._event_field is not None:
            notes.append(f"column {self._event_field.name!r} holds no times: nothing is known late")
        on_progress(found.rows, 1.0)
        return Profile(
            source=place,
            kind=kind,
            rows=found.rows,
            bytes=found.bytes,
            stored_bytes=self._stored_bytes,
            seq_first=found.seq_first,
            seq_last=seq_last,
            missing=seq_last - found.seq_first + 1 - found.rows,
            time_first=_EPOCH + timedelta(microseconds=found.time_first),
            time_last=_EPOCH + timedelta(microseconds=time_last),
            rates=rates,
            rate_bytes=rate_bytes,
            columns=tuple(columns),
            notes=tuple(notes),
            **more,
        )

    def _keys(self, found: measure.Totals, *, duplicates: bool) -> Any:
        least, greatest, count = found.key
        if self._key is None or self._key_field is None or not count:
            return None
        number, is_time = self._key
        per_s = 1_000_000 if is_time else None
        if self._is_guessed and self._has_events(found):
            per_s = 1_000_000_000
        more = measure.repeated_keys(self._frame, number) if duplicates else {}
        bounds = (least or 0, greatest or 0)
        name = self._key_field.name
        return measure.keys(self._frame, name, number, bounds, found.rows, per_s=per_s, **more)

    def _has_events(self, found: measure.Totals) -> bool:
        first, last, count = found.event
        if not count or first is None or last is None:
            return False
        if not self._is_guessed:
            return first > -(2**55) and last < 2**57  # within the years that a datetime has
        return first * 1_000 >= _NS_LEAST and last * 1_000 <= _NS_GREATEST

    def _field(self, name: str | None) -> StructField | None:
        if name is None:
            return None
        for field in self._frame.schema:
            if field.name == name:
                return field
        raise InvalidInput(
            f"{self._source.place} has no column {name!r}; the columns are "
            f"{', '.join(self._frame.columns)}"
        )


def _stored(source: Address, start: int, end: int) -> int:
    with open_rows(source, fail_on_loss=False) as rows:
        return int(rows.layout(start, end).sizes.sum())
