"""What a profile tells. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ColumnProfile:
    """One column of the payload."""

    name: str
    type: str
    nulls: int
    distinct: int  # about
    bytes: int
    least: str | None = None  # as a text; None if there is none, or the type has no order
    greatest: str | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """Two keys with none in between."""

    after: int
    before: int

    @property
    def width(self) -> int:
        return self.before - self.after


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many rows lie in each of some ranges of equal width."""

    start: int
    step: float
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KeyProfile:
    """The keys, or a column that was named as such."""

    column: str
    per_s: int | None  # how many are a second, if they are times since 1970
    least: int
    greatest: int
    nulls: int
    histogram: Histogram
    gaps_from: float  # gaps wider than this are all found
    gaps_count: int  # ... so many of them
    gaps: tuple[Gap, ...]  # the widest, the widest first
    distinct: int | None = None  # None: not looked for
    repeated: int | None = None  # keys that several rows have
    duplicates: int | None = None  # rows with a key that an earlier one has

    def shown(self, value: int) -> str:
        """A key as people read it."""
        if self.per_s is None:
            return f"{value:,}"
        try:
            return moment(_EPOCH + timedelta(seconds=value / self.per_s))
        except OverflowError:  # Spark knows times behind the year 9999.
            return f"{value:,}"

    def span(self, width: float) -> str:
        """A distance between keys as people read it."""
        return f"{width:,.0f}" if self.per_s is None else seconds(width / self.per_s)


@dataclass(frozen=True, slots=True)
class LateProfile:
    """When things happened against when they arrived, and in which order."""

    column: str
    rows: int  # that have a time
    first: datetime
    last: datetime
    late: int  # rows that happened before something that came before them
    late_s_max: float  # how far behind at most
    later_than: tuple[tuple[int, int], ...]  # (seconds, rows that are further behind)
    delay_s_median: float  # from the event to its arrival, about
    delay_s_99: float
    delay_s_max: float
    from_future: int  # rows that arrived before they happened
    cells: tuple[tuple[int, int, int], ...]  # (bin of arrival, bin of the event, rows)
    cells_per_side: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What was found; `str(profile)` is for people, `to_json()` for programs.

    >>> print(Profile(source="orders/", kind="log"))
    orders/: a log, 0 rows
    """

    source: str
    kind: str
    rows: int = 0
    bytes: int = 0  # of the payload, as Spark has it in memory
    stored_bytes: int = 0  # where it is stored, about
    seq_first: int | None = None
    seq_last: int | None = None
    missing: int = 0  # numbers between the first and the last that no row has
    time_first: datetime | None = None
    time_last: datetime | None = None
    rates: Histogram | None = None  # rows by the time of their arrival, in µs
    rate_bytes: tuple[int, ...] = ()
    columns: tuple[ColumnProfile, ...] = ()
    key: KeyProfile | None = None
    late: LateProfile | None = None
    duplicates: int | None = None  # rows whose payload an earlier one has; None: not looked for
    notes: tuple[str, ...] = field(default=())  # what was left out, and why

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data for JSON."""
        found: dict[str, Any] = _plain(asdict(self))
        if self.key is not None:
            found["key"]["gaps"] = [{**asdict(gap), "width": gap.width} for gap in self.key.gaps]
        return found

    def __str__(self) -> str:
        lines = [f"{self.source}: a {self.kind}, {self.rows:,} rows"]
        if not self.rows:
            return lines[0]
        lines[0] += f", {self.bytes:,} bytes ({self.stored_bytes:,} stored)"
        lines.append(f"numbers {self.seq_first:,} to {self.seq_last:,}, {self.missing:,} missing")
        if self.time_first is not None and self.time_last is not None:
            span_s = (self.time_last - self.time_first).total_seconds()
            rate = f", {self.rows / span_s:,.1f} rows/s on average" if span_s else ""
            lines.append(f"written {moment(self.time_first)} to {moment(self.time_last)}{rate}")
        if self.duplicates is not None:
            lines.append(f"{self.duplicates:,} rows repeat the payload of another")
        lines += [*_key_lines(self.key), *_late_lines(self.late), *self.notes]
        return "\n".join(lines)


def _key_lines(key: KeyProfile | None) -> list[str]:
    if key is None:
        return []
    lines = [f"keys ({key.column}): {key.shown(key.least)} to {key.shown(key.greatest)}"]
    if key.distinct is not None:
        lines[0] += f", {key.distinct:,} different"
        lines.append(f"{key.duplicates:,} rows repeat a key; {key.repeated:,} keys are repeated")
    if key.nulls:
        lines.append(f"{key.nulls:,} rows have no key")
    wide = f"{key.gaps_count:,} gaps between keys are wider than {key.span(key.gaps_from)}"
    if key.gaps:
        widest = key.gaps[0]
        wide += f"; the widest, {key.span(widest.width)}, behind {key.shown(widest.after)}"
    lines.append(wide)
    return lines


def _late_lines(late: LateProfile | None) -> list[str]:
    if late is None:
        return []
    steps = [f"{rows:,} by more than {seconds(second)}" for second, rows in late.later_than]
    lines = [
        f"events ({late.column}) from {moment(late.first)} to {moment(late.last)}; from the "
        f"event to its arrival {seconds(late.delay_s_median)} in the middle, "
        f"{seconds(late.delay_s_99)} for 99 %, {seconds(late.delay_s_max)} at most",
        f"{late.late:,} rows are late, behind something that came before them: by "
        f"{seconds(late.late_s_max)} at most" + (f"; {', '.join(steps)}" if late.late else ""),
    ]
    if late.from_future:
        lines.append(f"{late.from_future:,} rows arrived before they happened: look at the clocks")
    return lines


def moment(when: datetime) -> str:
    """A time as people read it."""
    return f"{when:%Y-%m-%d %H:%M:%S}"


def seconds(length_s: float) -> str:
    """A length of time in a unit that suits.

    >>> seconds(0.0042), seconds(90), seconds(7200), seconds(-3)
    ('4.2 ms', '1.5 min', '2 h', '-3 s')
    """
    size = abs(length_s)
    for unit, length in (("days", 86_400.0), ("h", 3_600.0), ("min", 60.0), ("s", 1.0)):
        if size >= length * (2 if unit == "days" else 1):
            return f"{length_s / length:.3g} {unit}"
    return f"{length_s * 1e3:.3g} ms" if size else "0 s"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value.isoformat() if isinstance(value, datetime) else value
