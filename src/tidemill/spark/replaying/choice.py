"""Which rows are replayed, and how they become rows of the target."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from xxhash import xxh3_64_hexdigest

from tidemill.errors import InvalidInput, InvalidKey, Trimmed
from tidemill.spark.address import Address
from tidemill.spark.reading import Between, read_rows, since_1970, time_options
from tidemill.spark.source.options import SourceOptions
from tidemill.spark.source.rows import open_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ITEM_KEY = "item_key"  # the column of a log that takes the key of a queue's items
_GIVEN = ("seq", "time")  # what the target gives anew


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The rows that are wanted, and the column that is their key, or takes it."""

    source: Address
    seqs: Between[int] = None
    keys: Between[int] = None
    times: Between[datetime] = None
    where: str | None = None
    key: str | None = None

    def checked(self) -> Choice:
        """The same, if it makes sense."""
        if self.source.kind == "ring":
            raise InvalidInput(
                f"{self.source.place} is a ring, whose entries come and go: read it as a DataFrame"
            )
        for what, bounds in (("number", self.seqs), ("key", self.keys), ("time", self.times)):
            low, high = bounds or (None, None)
            for one in (low, high):
                if isinstance(one, datetime) and one.tzinfo is None:
                    raise InvalidInput(f"the time {one.isoformat()} has no zone: say tzinfo=UTC")
            if low is not None and high is not None and _is_behind(low, high):
                raise InvalidInput(
                    f"no row lies between: the least {what} is {low}, the greatest {high}"
                )
        if self.source.kind == "log" and self.keys not in (None, (None, None)):
            raise InvalidInput(f"{self.source.place} is a log, whose rows have no keys")
        SourceOptions.parse({"path": self.source.url, **self._bounds()})
        return self

    @property
    def digest(self) -> str:
        """What tells one choice from another, so that each is replayed once."""
        times = [None if one is None else one.isoformat() for one in self.times or (None, None)]
        seqs, keys = self.seqs or (None, None), self.keys or (None, None)
        told = [self.source.place, *seqs, *keys, *times, self.where, self.key]
        return xxh3_64_hexdigest(json.dumps(told).encode())

    @property
    def has_end(self) -> bool:
        """Whether what comes later is no part of it."""
        return any(
            bounds is not None and bounds[1] is not None for bounds in (self.seqs, self.times)
        )

    def range(self, after: int | None) -> tuple[int, int]:
        """The numbers from the first up to the end that there are now; those up to `after` are
        done.
        """
        low, high = self.seqs or (None, None)
        with open_rows(self.source, fail_on_loss=True) as rows:
            first, end = rows.ends()
            if after is None:
                start = first if low is None else low
            else:
                start = after + 1 if low is None else max(low, after + 1)
            if self.source.kind == "log" and self.times is not None:
                options = SourceOptions.parse({"path": self.source.url, **time_options(self.times)})
                if options.start_us is not None:
                    start = max(start, rows.seq_at(options.start_us))
                if options.end_us is not None:
                    end = min(end, rows.seq_at(options.end_us))
            end = end if high is None else min(end, high + 1)
            if start < min(first, end) and self.source.kind == "log":
                raise Trimmed(
                    f"rows {start} to {first - 1} of {self.source.place} were trimmed before they "
                    f"were replayed; begin at {first}",
                    first=first,
                )
        return start, max(start, end)

    def rows(self, spark: SparkSession, start: int, end: int) -> DataFrame:
        """The rows that are wanted of those from `start` up to `end`, as the source gives them."""
        if self.source.kind == "log":
            bounds: dict[str, object] = {"startingOffsets": start, "endingOffsets": end}
        else:
            bounds = {**self._bounds(), "minSeq": start, "maxSeq": end - 1}
        found = read_rows(spark, self.source.url, bounds, in_order=True)
        return found if self.where is None else found.where(self.where)

    def shaped(self, rows: DataFrame, *, into_queue: bool) -> DataFrame:
        """With the columns that the target takes."""
        has_key = self.source.kind == "queue"
        payload = [name for name in rows.columns if name not in (*_GIVEN, "key")]
        columns = [rows[_quoted(name)] for name in payload]
        if into_queue:
            if self.key in (None, "key") and not has_key:
                raise InvalidKey(
                    f"a priority queue orders its items by a key, and rows of {self.source.place} "
                    f"have none: name the column to order by, one of {', '.join(payload)}"
                )
            if self.key not in (None, "key", *payload):
                raise InvalidKey(
                    f"there is no column {self.key!r} to order by; there are {', '.join(payload)}"
                )
            return rows.select(*([rows["key"]] if self.key in (None, "key") else []), *columns)
        if not has_key:
            if self.key is not None:
                raise InvalidInput("a log has no keys, and neither has what is replayed into it")
            return rows.select(*columns)
        name = self.key or ITEM_KEY
        if name in payload:
            raise InvalidInput(f"there is a column {name!r} already: name another for the key")
        return rows.select(rows["key"].alias(name), *columns)

    def _bounds(self) -> dict[str, str]:
        found = time_options(self.times)
        for column, bounds in (("Seq", self.seqs), ("Key", self.keys)):
            for side, value in zip(("min", "max"), bounds or (), strict=False):
                if value is not None:
                    found[f"{side}{column}"] = str(value)
        return found


def _is_behind(low: object, high: object) -> bool:
    if isinstance(low, datetime) and isinstance(high, datetime):
        return since_1970(low) > since_1970(high)
    return bool(low > high)  # type: ignore[operator]


def check_filter(rows: DataFrame, where: str) -> None:
    """Raise unless Spark can filter the rows by this."""
    try:
        _ = rows.where(where).schema
    except PySparkException as error:
        columns = ", ".join(rows.columns)
        named = (error.getMessageParameters() or {}).get("objectName")
        if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN") and named:
            what = f"there is no column {named.strip('`')!r}"
        else:
            what = str(error).strip().partition("\n")[0]
        raise InvalidInput(
            f"the rows cannot be filtered by {where!r}: {what}; the columns are {columns}"
        ) from error


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
