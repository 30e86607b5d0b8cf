"""What a reader may be told, by the names that the Kafka connector has for it. Pure.

Spark hands over strings. A name that is not known here is an error, for it is mostly a known one
misspelt, and to ignore it would be to read something else than was asked for.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from tidemill.errors import InvalidInput
from tidemill.files.readers.kept_snapshot import Bounds
from tidemill.limits import INT64_MAX, INT64_MIN, TIME_US_MAX
from tidemill.names import check_name

Where: TypeAlias = Literal["earliest", "latest"] | int

OFFSET = "next"  # the one name in an offset: the first row that is not part of what came before

# What is for streaming queries alone, and for batches that read a priority queue.
OF_STREAMS = ("consumer", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
OF_SNAPSHOTS = ("snapshotSeconds",)
OF_RINGS_ALONE = ("buffers",)

_NAMES = {
    name.lower(): name
    for name in (
        "path",
        "fork",
        "consumer",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "failOnDataLoss",
        "minSeq",
        "maxSeq",
        "minKey",
        "maxKey",
        "snapshotSeconds",
        "kind",
        "buffers",
    )
}
_UNITS_S = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_DELAY = re.compile(r"\s*(\d{1,15})\s*([a-z]+)\s*", re.ASCII)
_NUMBER = re.compile(r"\d{1,19}", re.ASCII)  # what may fit 64 bits


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of a read, checked.

    >>> SourceOptions.parse({"path": "orders/", "startingOffsets": "7"}).start
    7
    >>> SourceOptions.parse({"path": "orders/", "startingOffset": "7"})
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: unknown option 'startingOffset': did you mean startingOffsets?
    """

    path: str
    fork: str | None = None  # of a queue: whose items, instead of the queue's own
    consumer: str | None = None  # under which a streaming query is known, and rows wait for it
    start: Where | None = None  # the first row; None: not said
    end: Where | None = None  # the first row that is not read any more
    start_us: int | None = None  # rows from this time on, in place of a number
    end_us: int | None = None  # rows before this time
    trigger_rows_max: int | None = None
    trigger_rows_min: int | None = None
    trigger_delay_s_max: float = 15 * 60.0  # how long fewer than the least wait for more
    partitions_min: int | None = None
    partition_rows_max: int | None = None
    fail_on_loss: bool = True
    bounds: Bounds = field(default_factory=Bounds)  # of a batch: frames without are not read
    snapshot_s: float = 600.0  # how long a queue's snapshot is kept after it was last read
    kind: str | None = None  # "ring": of what is on MySQL, which may be a log or a ring
    buffers: str | None = None  # of a ring: the store that its entries are in, if it is another
    given: frozenset[str] = frozenset()  # the names of all that was said

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> SourceOptions:
        """Check what Spark hands over; names count in any case."""
        found = {name.lower(): value for name, value in given.items()}
        for name in given:
            if name.lower() not in _NAMES:
                raise InvalidInput(f"unknown option {name!r}: {_near(name)}")
        if not found.get("path"):
            raise InvalidInput('say which queue to read: .load("orders/"), or .option("path", …)')
        for one, other in (
            ("startingOffsets", "startingTimestamp"),
            ("endingOffsets", "endingTimestamp"),
        ):
            if one.lower() in found and other.lower() in found:
                raise InvalidInput(f"{one} and {other} say the same thing twice; give one of them")
        fork, consumer = found.get("fork"), found.get("consumer")
        options = cls(
            path=found["path"],
            fork=None if fork is None else check_name(fork, what="fork"),
            consumer=None if consumer is None else check_name(consumer, what="consumer"),
            start=_where(found, "startingOffsets"),
            end=_where(found, "endingOffsets"),
            start_us=_time(found, "startingTimestamp"),
            end_us=_time(found, "endingTimestamp"),
            trigger_rows_max=_count(found, "maxOffsetsPerTrigger"),
            trigger_rows_min=_count(found, "minOffsetsPerTrigger"),
            trigger_delay_s_max=_delay(found, "maxTriggerDelay", 15 * 60.0),
            partitions_min=_count(found, "minPartitions"),
            partition_rows_max=_count(found, "maxRecordsPerPartition"),
            fail_on_loss=_flag(found, "failOnDataLoss"),
            bounds=Bounds(seqs=_between(found, "Seq"), keys=_between(found, "Key")),
            snapshot_s=float(_count(found, "snapshotSeconds") or 600),
            kind=_kind(found),
            buffers=found.get("buffers"),
            given=frozenset(_NAMES[name] for name in found),
        )
        options._check_sense()
        return options

    def refuse(self, names: Iterable[str], why: str) -> None:
        """Raise if one of these was said: ignored, it would mislead whoever said it."""
        for name in names:
            if name in self.given:
                raise InvalidInput(f"{name} {why}")

    def _check_sense(self) -> None:
        """Refuse options that contradict one another."""
        least, most = self.trigger_rows_min, self.trigger_rows_max
        if least is not None and most is not None and least > most:
            raise InvalidInput(
                f"minOffsetsPerTrigger is {least}, above maxOffsetsPerTrigger, which is {most}"
            )
        if isinstance(self.start, int) and isinstance(self.end, int) and self.start > self.end:
            raise InvalidInput(
                f"startingOffsets is {self.start}, behind endingOffsets, which is {self.end}"
            )


def _kind(found: dict[str, str]) -> str | None:
    kind = found.get("kind")
    if kind is None or kind.lower() in ("queue", "log", "ring"):
        return kind and kind.lower()
    raise InvalidInput(f"kind is queue, log or ring, not {kind!r}")


def _near(name: str) -> str:
    """The known option that was perhaps meant."""
    # difflib would do, and takes longer to import than everything else here.
    short = name.lower().rstrip("s")
    for known in _NAMES.values() if len(short) > 2 else ():
        if known.lower().startswith(short) or short.startswith(known.lower().rstrip("s")):
            return f"did you mean {known}?"
    return f"there are {', '.join(sorted(_NAMES.values()))}"


def _where(found: dict[str, str], name: str) -> Where | None:
    text = found.get(name.lower())
    if text is None:
        return None
    if (word := text.strip().lower()) in ("earliest", "latest"):
        return "earliest" if word == "earliest" else "latest"
    try:
        data = json.loads(text)
        number = data[OFFSET] if isinstance(data, dict) and set(data) == {OFFSET} else data
        if type(number) is int and 1 <= number <= INT64_MAX:
            return number
    except (ValueError, RecursionError):
        pass  # Neither JSON nor, therefore, a number.
    raise InvalidInput(
        f'{name} is earliest, latest, the number of a row, or {{"{OFFSET}": number}}, not {text!r}'
    )


def _time(found: dict[str, str], name: str) -> int | None:
    """µs since 1970, from milliseconds as Kafka has them, or from a time with a zone."""
    text = found.get(name.lower())
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        micros = int(text) * 1000
    else:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise _no_time(name, text) from error
        if moment.tzinfo is None:
            raise _no_time(name, text)
        since = moment - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        micros = since // timedelta(microseconds=1)
    if not 0 <= micros <= TIME_US_MAX:
        raise _no_time(name, text)
    return micros


def _no_time(name: str, text: str) -> InvalidInput:
    return InvalidInput(
        f"{name} is a number of milliseconds since 1970, or a time with its zone such as "
        f"2026-01-31T12:00:00+00:00, not {text!r}"
    )


def _count(found: dict[str, str], name: str) -> int | None:
    text = found.get(name.lower())
    if text is None:
        return None
    if _NUMBER.fullmatch(text) and 1 <= int(text) <= INT64_MAX:
        return int(text)
    raise InvalidInput(f"{name} is a whole number from 1 on, not {text!r}")


def _between(found: dict[str, str], column: str) -> tuple[int, int]:
    """The least and the greatest value that is wanted of a column."""
    bounds = []
    for name, otherwise in ((f"min{column}", INT64_MIN), (f"max{column}", INT64_MAX)):
        text = found.get(name.lower(), str(otherwise))
        is_number = _NUMBER.fullmatch(text.removeprefix("-")) is not None
        if not is_number or not INT64_MIN <= int(text) <= INT64_MAX:
            raise InvalidInput(f"{name} is a whole number of 64 bits, not {text!r}")
        bounds.append(int(text))
    return bounds[0], bounds[1]


def _delay(found: dict[str, str], name: str, otherwise_s: float) -> float:
    text = found.get(name.lower())
    if text is None:
        return otherwise_s
    parts = _DELAY.fullmatch(text.lower())
    unit_s = None if parts is None else _UNITS_S.get(parts[2])
    if parts is None or unit_s is None:
        raise InvalidInput(f"{name} is a duration such as 30s, 5m or 1h, not {text!r}")
    return int(parts[1]) * unit_s


def _flag(found: dict[str, str], name: str) -> bool:
    text = found.get(name.lower(), "true").lower()
    if text not in ("true", "false"):
        raise InvalidInput(f"{name} is true or false, not {text!r}")
    return text == "true"
