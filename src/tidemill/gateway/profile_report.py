"""A profile as a page for a browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from tidemill.gateway.drawing import FAINT, Panel, area, round_up, short, text
from tidemill.gateway.web_page import COLOURS, cards, document, faint, svg, table
from tidemill.limits import TIME_US_MAX

if TYPE_CHECKING:  # Other commands do without.
    from tidemill.spark.profiling.profile import (
        ColumnProfile,
        Histogram,
        KeyProfile,
        LateProfile,
        Profile,
    )

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US_MIN = (datetime.min.replace(tzinfo=UTC) - _EPOCH) / timedelta(microseconds=1)
_RED = COLOURS[4]
_LEVELS = 6  # of shades
_COLUMNS_DRAWN = 20


def page(profile: Profile) -> str:
    """The page, as the text of an HTML file."""
    parts = [
        f"<h1>{escape(profile.source)}</h1>",
        *map(faint, str(profile).splitlines()[1:3]),
        cards(_facts(profile)),
    ]
    if profile.rates is not None and profile.rows:
        parts += [
            "<h2>Rows per second, by the time of their arrival</h2>",
            svg(240, _rates(profile.rates)),
        ]
    if profile.late is not None:
        parts += _late(profile.late, profile)
    if profile.key is not None:
        parts += _keys(profile.key)
    if profile.columns:
        parts += _columns(profile.columns, profile.rows)
    parts += [faint(note) for note in profile.notes]
    return document(f"Tidemill: {profile.source}", parts)


def _facts(profile: Profile) -> list[tuple[str, str]]:
    facts = [
        (f"{profile.rows:,}", "rows"),
        (f"{short(profile.bytes)}B", f"of payload, {short(profile.stored_bytes)}B stored"),
        (f"{profile.missing:,}", "numbers are missing"),
    ]
    if profile.duplicates is not None:
        facts.append((f"{profile.duplicates:,}", "rows repeat a payload"))
    if profile.key is not None and profile.key.duplicates is not None:
        facts.append((f"{profile.key.duplicates:,}", "rows repeat a key"))
    if profile.late is not None:
        facts.append((f"{profile.late.late:,}", "rows are late"))
    return facts


def _rates(rates: Histogram) -> list[str]:
    heights = np.array(rates.rows) / max(rates.step / 1e6, 1e-9)
    panel = _bars(heights, COLOURS[0])
    _label_times(panel, rates.start, rates.step * len(rates.rows))
    return panel.parts


def _bars(heights: np.ndarray, colour: str) -> Panel:
    panel = Panel(80, 16, 830, 180)
    top = round_up(float(heights.max()))
    for quarter in range(5):
        panel.label_y(quarter / 4, short(top * quarter / 4))
    panel.parts.append(area(panel, heights / top, colour))
    return panel


def _label_times(panel: Panel, start_us: float, span_us: float) -> None:
    """Five times along the bottom, as exact as they have to be."""
    for quarter in range(5):
        panel.label_x(quarter / 4, _clock(start_us + span_us * quarter / 4, span_us))


def _clock(at_us: float, span_us: float) -> str:
    """A time on an axis that is so long.

    >>> [_clock(1.7e15 + 250_000, span_us) for span_us in (1e6, 1e9, 1e12, 1e14)]
    ['22:13:20.250', '22:13:20', '11-14 22:13', '2023-11-14']
    """
    # A bin may end behind the year 9999, the last that Python has.
    when = _EPOCH + timedelta(microseconds=min(max(at_us, _US_MIN), TIME_US_MAX))
    if span_us < 10e6:
        return f"{when:%H:%M:%S.%f}"[:-3]
    if span_us < 2 * 86_400e6:
        return f"{when:%H:%M:%S}"
    return f"{when:%m-%d %H:%M}" if span_us < 300 * 86_400e6 else f"{when:%Y-%m-%d}"


def _keys(key: KeyProfile) -> list[str]:
    spread = key.histogram
    panel = _bars(np.array(spread.rows, float), COLOURS[2])
    span = spread.step * len(spread.rows)
    for quarter in range(5):
        value = spread.start + span * quarter / 4
        us = 1e6 / key.per_s if key.per_s is not None else None
        words = short_signed(value) if us is None else _clock(value * us, span * us)
        panel.label_x(quarter / 4, words)
    for gap in key.gaps:
        left, right = ((at - spread.start) / span for at in (gap.after, gap.before))
        width = max((right - left) * panel.width, 2)
        words = f"none from {key.shown(gap.after)} to {key.shown(gap.before)}"
        panel.parts.append(
            f'<rect x="{panel.x(left):.1f}" y="{panel.top}" width="{width:.1f}" '
            f'height="{panel.height}" fill="{_RED}" fill-opacity="0.18">'
            f"<title>{escape(words)}</title></rect>"
        )
    rows = [(key.shown(gap.after), key.shown(gap.before), key.span(gap.width)) for gap in key.gaps]
    gaps = table(("behind", "before", "width"), rows, (0, 1, 2)) if rows else ""
    return [
        f"<h2>Keys: {escape(key.column)}</h2>",
        faint(
            f"How many rows have keys in each range. In red the widest of {key.gaps_count:,} gaps "
            f"that are wider than {key.span(key.gaps_from)}; smaller ones were not looked for."
        ),
        svg(240, panel.parts),
        gaps,
    ]


def short_signed(value: float) -> str:
    """A number in few characters, also one below 0.

    >>> short_signed(-1500), short_signed(2e9)
    ('-1.5 k', '2e+03 M')
    """
    return f"-{short(-value)}" if value < 0 else short(value)


def _late(late: LateProfile, profile: Profile) -> list[str]:
    behind = [
        (f"more than {_length(second)}", f"{rows:,}", f"{rows / max(late.rows, 1):.3%}")
        for second, rows in late.later_than
    ]
    return [
        f"<h2>Late data: {escape(late.column)} against the time of arrival</h2>",
        faint(
            "A cell is a stretch of arrivals and of events: the darker, the more rows. What is on "
            "time lies on a line, what is late below it."
        ),
        svg(380, _cells(late, profile)),
        faint(
            "How far rows are behind the latest event before them: with a watermark of so much, "
            "a streaming query drops at most so many rows."
        ),
        table(("behind", "rows", "share"), behind, (1, 2)),
    ]


def _cells(late: LateProfile, profile: Profile) -> list[str]:
    panel = Panel(120, 16, 790, 310)
    side = late.cells_per_side
    span_us = (late.last - late.first) / timedelta(microseconds=1)
    first_us = (late.first - _EPOCH) / timedelta(microseconds=1)
    for quarter in range(5):
        panel.label_y(quarter / 4, _clock(first_us + span_us * quarter / 4, span_us))
    if profile.time_first is not None and profile.time_last is not None:
        start_us = (profile.time_first - _EPOCH) / timedelta(microseconds=1)
        arrived_us = (profile.time_last - profile.time_first) / timedelta(microseconds=1)
        _label_times(panel, start_us, arrived_us)
    panel.parts.append(text(panel.left, panel.y(0) + 38, "arrival →", size=11, colour=FAINT))
    panel.parts.append(text(8, panel.top + 10, "event ↑", size=11, colour=FAINT))
    most = np.log1p(max(count for _, _, count in late.cells))
    width, height = panel.width / side, panel.height / side
    paths = [""] * _LEVELS
    for x, y, count in late.cells:
        level = min(int(np.log1p(count) / most * _LEVELS), _LEVELS - 1)
        left, top = panel.x(x / side), panel.y((y + 1) / side)
        paths[level] += f"M{left:.1f} {top:.1f}h{width:.2f}v{height:.2f}h-{width:.2f}z"
    shades = np.linspace(0.25, 1, _LEVELS)
    panel.parts += [
        f'<path d="{path}" fill="{COLOURS[0]}" fill-opacity="{shade:.2f}"/>'
        for path, shade in zip(paths, shades, strict=True)
        if path
    ]
    return panel.parts


def _columns(columns: tuple[ColumnProfile, ...], rows: int) -> list[str]:
    cells = [
        (
            one.name,
            one.type,
            f"{one.nulls:,} ({one.nulls / max(rows, 1):.1%})",
            f"{one.distinct:,}",
            one.least or "",
            one.greatest or "",
            f"{short(one.bytes)}B",
        )
        for one in columns
    ]
    headings = ("column", "type", "nulls", "different, about", "least", "greatest", "bytes")
    return [
        "<h2>Columns</h2>",
        svg(26 * min(len(columns), _COLUMNS_DRAWN) + 30, _shares(columns, rows)),
        table(headings, cells, (2, 3, 6)),
    ]


def _shares(columns: tuple[ColumnProfile, ...], rows: int) -> list[str]:
    """For the largest columns: the share of the bytes, and of the values that are null."""
    largest = sorted(columns, key=lambda one: -one.bytes)[:_COLUMNS_DRAWN]
    total = max(sum(one.bytes for one in columns), 1)
    parts = [
        text(200, 14, "share of the bytes", size=11, colour=FAINT),
        text(600, 14, "share that is null", size=11, colour=FAINT),
    ]
    for row, one in enumerate(largest):
        y = 24 + 26 * row
        name = one.name if len(one.name) < 26 else f"{one.name[:24]}…"
        parts.append(text(188, y + 13, name, anchor="end"))
        for left, share, colour in (
            (200, one.bytes / total, COLOURS[0]),
            (600, one.nulls / max(rows, 1), COLOURS[1]),
        ):
            parts.append(f'<rect x="{left}" y="{y}" width="300" height="17" fill="#f1f4f7"/>')
            parts.append(
                f'<rect x="{left}" y="{y}" width="{300 * share:.1f}" height="17" fill="{colour}"/>'
            )
            parts.append(text(left + 306, y + 13, f"{share:.1%}", size=11, colour=FAINT))
    return parts


def _length(seconds: int) -> str:
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"{seconds} second" if seconds == 1 else f"{seconds} seconds"
