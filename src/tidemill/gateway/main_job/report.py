"""The run as a page for a browser: what happened, what came out, and the proof. One file, no
scripts, nothing fetched.
"""

from __future__ import annotations

from html import escape

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemill.gateway.demo.telemetry import DEVICES, METRICS, START_NS, TIME_NS
from tidemill.gateway.drawing import FAINT, Panel, dots, short, text
from tidemill.gateway.main_job.readings import WINDOW_S, WINDOWS
from tidemill.gateway.main_job.story import Story
from tidemill.gateway.web_page import COLOURS, cards, document, svg

KILL = "#c62828"
STAGE_COLOURS = {
    "push": "#1f77b4",
    "push again": "#1f77b4",
    "merge": "#2a8f5b",
    "merge again": "#2a8f5b",
    "pipeline": "#e07b00",
    "pipeline again": "#e07b00",
    "proof": "#7b5ea7",
}
_MINUTES = TIME_NS // 60_000_000_000


def page(story: Story) -> str:
    """The page, as the text of an HTML file."""
    windows = 0 if story.windows is None else story.windows.num_rows
    facts = [
        (f"{story.items:,}", "readings from 8 devices"),
        (f"{sum(stage.is_killed for stage in story.stages)}", "processes killed by SIGKILL"),
        (f"{windows:,}", "windows of 10 seconds"),
        (f"{sum(story.bad.values()):,}", "bad rows set aside"),
        (f"{story.seconds:,.0f} s", "from the first push to the proof"),
    ]
    parts = [
        "<h1>From devices to a report, nothing lost, nothing twice</h1>",
        "<p class='faint'>Devices push to priority queues; the queues are merged into a log; a "
        "pipeline on Spark counts and sums it by windows, archives it and sets bad rows aside. The "
        "devices and the pipeline are killed in the middle, and go on.</p>",
        cards(facts),
        "<h2>What happened</h2>",
        svg(204, _timeline(story)),
        _stages(story),
        "<h2>The log: when a row was measured, by its number</h2>",
        "<p class='faint'>Each merge is in the order of time. What the devices had not sent when "
        "they were killed, and what one of them measured while it was offline, came with the "
        "second one, up to minutes late.</p>",
        svg(300, _log(story)),
        "<h2>What the pipeline found: the mean of each metric, by window and device</h2>",
        *(svg(250, _means(story.windows, metric)) for metric in _found(story.windows)),
        "<h2>The proof</h2>",
        "<p class='faint'>Every reading follows from its number, so that what has to come out is "
        "known. All of it was compared.</p>",
        _proof(story),
    ]
    return document("Tidemill: the main job", parts)


def _timeline(story: Story) -> list[str]:
    """The stages as bars over time."""
    panel = Panel(110, 24, 830, 140)
    start_s, span_s = story.stages[0].start_s, max(story.seconds, 1e-9)
    lanes = ["push", "merge", "pipeline", "proof"]
    for row, lane in enumerate(lanes):
        y = panel.top + 12 + row * 32
        panel.parts.append(text(panel.left - 10, y + 15, lane, anchor="end", colour=FAINT))
    for stage in story.stages:
        row = lanes.index(stage.name.removesuffix(" again"))
        x = panel.x((stage.start_s - start_s) / span_s)
        width = max(stage.seconds / span_s * panel.width, 2)
        y = panel.top + 12 + row * 32
        title = f"{stage.title}: {stage.rows:,} rows in {stage.seconds:.1f} s"
        panel.parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="22" rx="3" '
            f'fill="{STAGE_COLOURS[stage.name]}"><title>{escape(title)}</title></rect>'
        )
        if stage.is_killed:
            panel.parts.append(
                f'<line x1="{x + width:.1f}" x2="{x + width:.1f}" y1="{panel.top - 6}" '
                f'y2="{panel.y(0)}" stroke="{KILL}" stroke-width="2" stroke-dasharray="5 3"/>'
            )
            label = text(x + width + 5, panel.top - 8, "kill -9", colour=KILL, weight=600)
            panel.parts.append(label)
    for second in _ticks(span_s):
        panel.label_x(second / span_s, f"{second:g} s")
    return panel.parts


def _ticks(span_s: float) -> list[float]:
    step = next((one for one in (1, 2, 5, 10, 20, 50, 100) if span_s / one <= 12), span_s / 10)
    return [step * number for number in range(int(span_s / step) + 1)]


def _stages(story: Story) -> str:
    rows = []
    for stage in story.stages:
        killed = "<span class='killed'>killed</span>" if stage.is_killed else ""
        rows.append(
            f"<tr><td>{escape(stage.title)} {killed}</td><td class='n'>{stage.rows:,}</td>"
            f"<td class='n'>{stage.seconds:.1f} s</td><td class='n'>{stage.rate:,}</td></tr>"
        )
    head = "<tr><th>stage</th><th class='n'>rows</th><th class='n'>time</th>"
    note = (
        "<p class='faint'>Rows of the pipeline are counted once for each of its three sinks; its "
        "time is that of a process that starts Spark.</p>"
    )
    return f"<table>{head}<th class='n'>rows/s</th></tr>{''.join(rows)}</table>{note}"


def _log(story: Story) -> list[str]:
    panel = Panel(80, 20, 860, 230)
    for minute in range(0, _MINUTES + 1, 2):
        panel.label_y(minute / _MINUTES, f"{minute} min")
    last = max(int(story.log_seqs.max()), 1) if len(story.log_seqs) else 1
    for quarter in range(5):
        panel.label_x(quarter / 4, short(last * quarter / 4))
    is_second = story.log_seqs > story.merged_first
    for chosen, colour in ((~is_second, COLOURS[0]), (is_second, COLOURS[1])):
        shares = story.log_seqs[chosen] / last
        panel.parts.append(dots(panel, shares, story.log_times[chosen], colour))
    for row, (colour, words) in enumerate(
        [(COLOURS[0], "first merge"), (COLOURS[1], "second merge")]
    ):
        y = panel.top + 20 + 18 * row
        panel.parts.append(f'<circle cx="{panel.left + 14}" cy="{y - 4}" r="4" fill="{colour}"/>')
        panel.parts.append(text(panel.left + 24, y, words))
    return panel.parts


def _found(windows: pa.Table | None) -> list[str]:
    """The metrics that there are windows of: few readings are not of each."""
    known = set() if windows is None else set(windows.column("metric").unique().to_pylist())
    return [metric for metric in METRICS.to_pylist() if metric in known]


def _means(windows: pa.Table, metric: str) -> list[str]:
    """One line for each device."""
    table = windows.filter(pc.equal(windows.column("metric"), metric))
    starts = table.column("start").cast(pa.int64()).to_numpy() * 1_000
    at = (starts - START_NS) / (WINDOW_S * 10**9 * WINDOWS)
    totals = table.column("total_hundredths").to_numpy()
    means = totals / table.column("readings").to_numpy() / 100
    device = table.column("device").to_numpy()
    low, high = float(means.min()), float(means.max())
    margin = max((high - low) * 0.08, 0.1)
    low, high = low - margin, high + margin
    panel = Panel(80, 34, 860, 180)
    panel.title(metric)
    for quarter in range(5):
        panel.label_y(quarter / 4, f"{low + (high - low) * quarter / 4:.1f}")
    for minute in range(0, _MINUTES + 1, 1):
        panel.label_x(minute / _MINUTES, f"{minute} min")
    for one in range(DEVICES):
        order = np.flatnonzero(device == one)
        order = order[np.argsort(at[order])]
        points = " ".join(
            f"{panel.x(float(x) + 0.5 / WINDOWS):.1f},{panel.y(float(y)):.1f}"
            for x, y in zip(at[order], (means[order] - low) / (high - low), strict=True)
        )
        panel.parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[one]}" '
            f'stroke-width="1.4"><title>device {one}</title></polyline>'
        )
        x = panel.x(1) - 70 * (DEVICES - one)
        panel.parts.append(text(x, panel.top - 10, f"device {one}", size=11, colour=COLOURS[one]))
    return panel.parts


def _proof(story: Story) -> str:
    rows = [
        f"<tr><td>{escape(check.claim)}</td><td class='n'>{escape(check.expected)}</td>"
        f"<td class='n'>{escape(check.found)}</td><td class='ok'>✓</td></tr>"
        for check in story.checks
    ]
    head = "<tr><th>claim</th><th class='n'>expected</th><th class='n'>found</th><th></th></tr>"
    return f"<table>{head}{''.join(rows)}</table>"
