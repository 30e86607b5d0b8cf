"""The queries of a profile. Each brings a bounded number of rows to the driver."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 (as everybody calls it)
from pyspark.sql.types import StructField

from tidemill.limits import PROFILE_COLUMNS_AT_ONCE
from tidemill.spark.profiling.profile import (
    ColumnProfile,
    Gap,
    Histogram,
    KeyProfile,
    LateProfile,
)
from tidemill.spark.profiling.values import brought, compared, hashed, hashes, shown, size

TIME_BINS = 120
KEY_BINS = 4_096
CELLS = 100  # on each side of the picture of arrivals against events
BLOCKS = 512  # of rows, whose latest event is known before lateness is measured
GAPS_SHOWN = 10
BEHIND_S = (1, 10, 60, 600, 3_600, 86_400)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Totals(NamedTuple):
    """What one look at all rows tells."""

    rows: int
    bytes: int
    seq_first: int | None
    seq_last: int | None
    time_first: int | None  # in µs
    time_last: int | None
    key: tuple[int | None, int | None, int]  # least, greatest, how many there are
    event: tuple[int | None, int | None, int]
    delays: Sequence[int]  # µs: the median and the 99th percentile, about
    delay_max: int | None
    from_future: int


def totals(
    frame: DataFrame, fields: Sequence[StructField], key: Column | None, event: Column | None
) -> Totals:
    """Counts, sizes and bounds."""
    nothing = F.lit(None).cast("long")
    number, happened = nothing if key is None else key, nothing if event is None else event
    time = F.unix_micros(F.col("time"))
    delay = F.try_subtract(time, happened)
    row = frame.agg(
        F.count(F.lit(1)).alias("rows"),
        F.coalesce(F.sum(_bytes(fields)), F.lit(0)).alias("bytes"),
        F.min("seq"),
        F.max("seq"),
        F.min(time),
        F.max(time),
        F.struct(F.min(number), F.max(number), F.count(number)),
        F.struct(F.min(happened), F.max(happened), F.count(happened)),
        F.percentile_approx(delay, [0.5, 0.99], 1_000),
        F.max(delay),
        F.count(F.when(delay < 0, 1)),
    ).collect()[0]
    values: list[Any] = list(row)
    return Totals(*values)


def columns(frame: DataFrame, fields: Sequence[StructField]) -> list[ColumnProfile]:
    """Nulls, different values, bytes and bounds of each column."""
    found = []
    for start in range(0, len(fields), PROFILE_COLUMNS_AT_ONCE):
        some = fields[start : start + PROFILE_COLUMNS_AT_ONCE]
        wanted: list[Column] = [F.count(F.lit(1))]
        for field in some:
            value, order = hashed(field), compared(field)
            least = F.lit(None) if order is None else brought(field, F.min(order))
            greatest = F.lit(None) if order is None else brought(field, F.max(order))
            wanted += [
                F.count(F.when(value.isNull(), 1)),
                F.approx_count_distinct(value),
                F.coalesce(F.sum(size(field)), F.lit(0)),
                least,
                greatest,
            ]
        named = [one.alias(f"_{at}") for at, one in enumerate(wanted)]
        rows, *values = frame.agg(*named).collect()[0]
        for at, field in enumerate(some):
            nulls, distinct, taken, least_value, greatest_value = values[5 * at : 5 * at + 5]
            kind = field.dataType.simpleString()
            found.append(
                ColumnProfile(
                    field.name,
                    kind,
                    nulls,
                    min(distinct, rows - nulls),  # It is an estimate, and may be above.
                    taken,
                    shown(least_value, field),
                    shown(greatest_value, field),
                )
            )
    return found


def rates(
    frame: DataFrame, fields: Sequence[StructField], first: int, last: int
) -> tuple[Histogram, tuple[int, ...]]:
    """Rows and bytes by the time of their arrival."""
    step = _step(first, last, TIME_BINS)
    at = _bin(F.unix_micros(F.col("time")), first, step, TIME_BINS).alias("_bin")
    told = frame.select(at, _bytes(fields).alias("_bytes")).groupBy("_bin")
    rows, sizes = [0] * TIME_BINS, [0] * TIME_BINS
    for row in told.agg(F.count(F.lit(1)), F.sum("_bytes")).collect():
        rows[row[0]], sizes[row[0]] = row[1], row[2]
    return Histogram(first, step, tuple(rows)), tuple(sizes)


def keys(
    frame: DataFrame, column: str, number: Column, bounds: tuple[int, int], rows: int, **more: Any
) -> KeyProfile:
    """How keys are spread, and where there are none.

    A gap wider than a bin has an end in each of two bins, so that the bins' least and greatest
    keys tell all of them.
    """
    least, greatest = bounds
    step = _step(least, greatest, KEY_BINS)
    binned = frame.select(_bin(number, least, step, KEY_BINS).alias("_bin"), number.alias("_key"))
    told = binned.where("_key IS NOT NULL").groupBy("_bin")
    bins = sorted(told.agg(F.count(F.lit(1)), F.min("_key"), F.max("_key")).collect())
    counts = [0] * KEY_BINS
    for at, count, _, _ in bins:
        counts[at] = count
    found = [Gap(one[3], other[2]) for one, other in pairwise(bins)]
    wide = sorted((gap for gap in found if gap.width > max(step, 1)), key=lambda gap: -gap.width)
    fold = KEY_BINS // TIME_BINS + 1
    drawn = [sum(counts[at : at + fold]) for at in range(0, KEY_BINS, fold)]
    return KeyProfile(
        column=column,
        least=least,
        greatest=greatest,
        nulls=rows - sum(counts),
        histogram=Histogram(least, step * fold, tuple(drawn)),
        gaps_from=max(step, 1),
        gaps_count=len(wide),
        gaps=tuple(wide[:GAPS_SHOWN]),
        **more,
    )


def repeated_keys(frame: DataFrame, number: Column) -> dict[str, int]:
    """Different keys, those that several rows have, and the rows behind the first of each."""
    counted = frame.select(number.alias("_key")).where("_key IS NOT NULL").groupBy("_key").count()
    row = counted.agg(
        F.count(F.lit(1)), F.count(F.when(F.col("count") > 1, 1)), _behind_the_first()
    ).collect()[0]
    return {"distinct": row[0], "repeated": row[1], "duplicates": row[2]}


def repeated_payloads(frame: DataFrame, fields: Sequence[StructField]) -> int:
    """Rows whose payload another has, behind the first of each."""
    counted = frame.select(*hashes(list(fields))).groupBy("_one", "_other").count()
    return int(counted.agg(_behind_the_first()).collect()[0][0])


def late(frame: DataFrame, column: str, event: Column, found: Totals) -> LateProfile:
    """How far rows are behind the latest event before them, exactly.

    The rows are divided into blocks by number. The latest event of each block is known first; with
    it each block is looked through by itself.
    """
    first, last, count = found.event
    if first is None or last is None or found.seq_first is None or found.time_first is None:
        raise ValueError("there are no events")
    seq_step = _step(found.seq_first, found.seq_last or 0, BLOCKS)
    rows = frame.select(
        F.col("seq").alias("_seq"),
        F.unix_micros(F.col("time")).alias("_time"),
        event.alias("_event"),
        _bin(F.col("seq"), found.seq_first, seq_step, BLOCKS).alias("_block"),
    ).where("_event IS NOT NULL")
    time_step = _step(found.time_first, found.time_last or 0, CELLS)
    event_step = _step(first, last, CELLS)
    cells = rows.groupBy(
        "_block",
        _bin(F.col("_time"), found.time_first, time_step, CELLS).alias("_x"),
        _bin(F.col("_event"), first, event_step, CELLS).alias("_y"),
    )
    told = cells.agg(F.count(F.lit(1)), F.max("_event")).collect()
    latest: dict[int, int] = {}
    drawn: dict[tuple[int, int], int] = {}
    for block, x, y, rows_of, event_max in told:
        latest[block] = max(latest.get(block, event_max), event_max)
        drawn[x, y] = drawn.get((x, y), 0) + rows_of
    behind = _behind(rows, latest)
    late_s = F.col("_late") / 1_000_000
    row = behind.agg(
        F.count(F.when(F.col("_late") > 0, 1)),
        F.coalesce(F.max(late_s), F.lit(0.0)),
        *(F.count(F.when(late_s > second, 1)) for second in BEHIND_S),
    ).collect()[0]
    median, most = (delay / 1e6 for delay in found.delays)
    return LateProfile(
        column=column,
        rows=count,
        first=_EPOCH + timedelta(microseconds=first),
        last=_EPOCH + timedelta(microseconds=last),
        late=row[0],
        late_s_max=max(float(row[1]), 0.0),
        later_than=tuple(zip(BEHIND_S, row[2:], strict=True)),
        delay_s_median=median,
        delay_s_99=most,
        delay_s_max=(found.delay_max or 0) / 1e6,
        from_future=found.from_future,
        cells=tuple((x, y, count) for (x, y), count in sorted(drawn.items())),
        cells_per_side=CELLS,
    )


def _behind(rows: DataFrame, latest: dict[int, int]) -> DataFrame:
    """Rows with `_late`: by how many µs the latest event before each is ahead of it."""
    blocks = sorted(latest)
    before = accumulate((latest[block] for block in blocks[:-1]), max)
    known = list(zip(blocks, [None, *before], strict=True))
    priors = rows.sparkSession.createDataFrame(known, "_block INT, _prior LONG")
    inside = Window.partitionBy("_block").orderBy("_seq").rowsBetween(Window.unboundedPreceding, -1)
    ahead = F.greatest(F.max("_event").over(inside), F.col("_prior"))
    joined = rows.join(F.broadcast(priors), "_block")
    return joined.select(F.try_subtract(ahead, F.col("_event")).alias("_late"))


def _bytes(fields: Sequence[StructField]) -> Column:
    total = F.lit(0).cast("long")
    for field in fields:
        total = total + size(field)
    return total


def _behind_the_first() -> Column:
    return F.coalesce(F.sum(F.col("count") - 1), F.lit(0))


def _step(first: int, last: int, bins: int) -> float:
    return max((last - first) / bins, 1e-9)


def _bin(number: Column, first: int, step: float, bins: int) -> Column:
    """The bin of a number; in floats, which keep the order and do not overflow."""
    at = F.floor((number.cast("double") - F.lit(float(first))) / F.lit(step))
    return F.greatest(F.least(at, F.lit(bins - 1)), F.lit(0)).cast("int")
