"""The run as a drawing: events as they arrived and as they left, and the rates over time.

Plain SVG, which every browser shows.
"""

from __future__ import annotations

from html import escape

import numpy as np
import numpy.typing as npt

from tidemill.gateway.demo.record import Phase, Record
from tidemill.gateway.demo.telemetry import DEVICES, OFFLINE_DEVICE
from tidemill.gateway.drawing import FAINT, Panel, area, dots, round_up, short, text

WIDTH, HEIGHT = 960, 700
BEFORE, AFTER, KILL = "#1f77b4", "#e07b00", "#c62828"
COLOURS = {
    "push": BEFORE,
    "audit": "#7b5ea7",
    "push again": AFTER,
    "pop": "#2a8f5b",
    "audit rest": "#7b5ea7",
}
BINS = 160
MINUTES = 10  # of events


def draw(record: Record) -> str:
    """The picture, as the text of an SVG file."""
    title = f"{record.items:,} events, {DEVICES} devices, one SIGKILL, nothing lost"
    facts = (
        f"{record.acknowledged:,} acknowledged before the kill, {record.found:,} found after it, "
        f"opened again in {record.opened_s * 1000:,.0f} ms"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
        f'height="{HEIGHT}" font-family="system-ui, sans-serif" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(80, 36, title, size=20, weight=700),
        text(80, 58, facts, size=13, colour=FAINT),
        *_orders(record),
        *_timeline(record),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _orders(record: Record) -> list[str]:
    """Event time against the order of arrival, and against the order of the pops."""
    numbers = np.concatenate(record.numbers)
    arrivals = np.concatenate(record.arrivals)
    taken = numbers / record.items
    is_after = arrivals >= record.seq_at_kill
    came, left = Panel(80, 110, 390, 230), Panel(550, 110, 390, 230)
    came.title("As they arrived")
    left.title("As they were popped")
    for panel in (came, left):
        for minute in range(0, MINUTES + 1, 2):
            panel.label_y(minute / MINUTES, f"{minute} min")
    for panel, what in ((came, "order of arrival →"), (left, "order of pops →")):
        panel.parts.append(
            text(panel.x(1), panel.y(0) + 18, what, anchor="end", size=11, colour=FAINT)
        )
    came.parts.append(text(came.left, came.y(0) + 18, "time of the event ↑", size=11, colour=FAINT))
    at = arrivals / max(int(arrivals.max()), 1)
    popped = np.arange(len(numbers)) / max(len(numbers) - 1, 1)
    for is_chosen, colour in ((~is_after, BEFORE), (is_after, AFTER)):
        came.parts.append(dots(came, at[is_chosen], taken[is_chosen], colour))
        left.parts.append(dots(left, popped[is_chosen], taken[is_chosen], colour))
    came.parts += _legend(came)
    return came.parts + left.parts


def _legend(panel: Panel) -> list[str]:
    lines = [(BEFORE, "pushed before the kill"), (AFTER, "pushed after it")]
    parts = []
    for row, (colour, words) in enumerate(lines):
        y = panel.top + 18 + 17 * row
        parts.append(f'<circle cx="{panel.left + 14}" cy="{y - 4}" r="4" fill="{colour}"/>')
        parts.append(text(panel.left + 24, y, words, size=11))
    parts.append(
        text(
            panel.x(1) - 8,
            panel.y(0) - 10,
            f"far off the line: device {OFFLINE_DEVICE}, offline for two minutes",
            anchor="end",
            size=11,
            colour=FAINT,
        )
    )
    return parts


def _timeline(record: Record) -> list[str]:
    """Events per second of each phase over the time of the run."""
    panel = Panel(80, 410, 860, 210)
    panel.title("Events per second")
    start_s = record.phases[0].start_s
    end_s = max(phase.end_s for phase in record.phases)
    span_s = max(end_s - start_s, 1e-9)
    edges = np.linspace(0, span_s, BINS + 1)
    rates = {id(phase): _rates(phase, start_s, edges) for phase in record.phases if phase.steps}
    top = round_up(max([float(values.max()) for values in rates.values()], default=1.0))
    for quarter in range(5):
        panel.label_y(quarter / 4, short(top * quarter / 4))
    for second in _ticks(span_s):
        panel.label_x(second / span_s, f"{second:g} s")
    for phase in record.phases:
        if phase.steps:
            panel.parts.append(area(panel, rates[id(phase)] / top, COLOURS[phase.name]))
    killed = panel.x(min((record.killed_s - start_s) / span_s, 1.0))
    panel.parts.append(
        f'<line x1="{killed:.1f}" x2="{killed:.1f}" y1="{panel.top - 4}" y2="{panel.y(0)}" '
        f'stroke="{KILL}" stroke-width="2" stroke-dasharray="5 3"/>'
    )
    panel.parts.append(text(killed + 6, panel.top + 14, "kill -9", colour=KILL, weight=600))
    return panel.parts + _phase_legend(record, panel)


def _phase_legend(record: Record, panel: Panel) -> list[str]:
    parts = []
    names = [phase for phase in record.phases if phase.name != "audit rest"]
    step = panel.width / len(names)
    for column, phase in enumerate(names):
        x, y = panel.left + column * step, panel.y(0) + 44
        parts.append(
            f'<rect x="{x:.1f}" y="{y - 10}" width="12" height="12" rx="2" '
            f'fill="{COLOURS[phase.name]}"/>'
        )
        checked = ", checked" if phase.queue_s else ""
        parts.append(text(x + 18, y, phase.name, size=13, weight=600))
        parts.append(text(x + 18, y + 17, f"{short(phase.rate)} events/s{checked}", colour=FAINT))
    return parts


def _rates(phase: Phase, start_s: float, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Events per second in each bin: each step is spread over the time since the one before."""
    times = np.array([phase.start_s, *(at for at, _ in phase.steps)]) - start_s
    done = np.cumsum([0, *(rows for _, rows in phase.steps)])
    order = np.argsort(times, kind="stable")
    return np.diff(np.interp(edges, times[order], done[order])) / np.diff(edges)


def _ticks(span_s: float) -> list[float]:
    step = next(
        (one for one in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if span_s / one <= 10), span_s / 10
    )
    return [round(step * number, 3) for number in range(int(span_s / step) + 1)]
