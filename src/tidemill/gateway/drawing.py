"""Drawing in plain SVG, which every browser shows: a panel with axes, dots, texts."""

from __future__ import annotations

from html import escape

import numpy as np
import numpy.typing as npt

INK, FAINT, GRID = "#1d2b36", "#5c6b77", "#dfe5ea"


class Panel:
    """A rectangle with axes; x and y are given as shares of it, y upwards."""

    def __init__(self, left: float, top: float, width: float, height: float) -> None:
        self.left, self.top, self.width, self.height = left, top, width, height
        self.parts = [
            f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="#fbfcfd" '
            f'stroke="{GRID}"/>'
        ]

    def x(self, share: float) -> float:
        return self.left + share * self.width

    def y(self, share: float) -> float:
        return self.top + (1 - share) * self.height

    def title(self, title: str) -> None:
        self.parts.append(text(self.left, self.top - 10, title, size=15, weight=600))

    def label_x(self, share: float, label: str) -> None:
        at = self.x(share)
        self.parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{self.y(0)}" y2="{self.y(0) + 4}" '
            f'stroke="{FAINT}"/>'
        )
        self.parts.append(text(at, self.y(0) + 18, label, anchor="middle", colour=FAINT))

    def label_y(self, share: float, label: str) -> None:
        at = self.y(share)
        self.parts.append(
            f'<line x1="{self.left}" x2="{self.x(1)}" y1="{at:.1f}" y2="{at:.1f}" stroke="{GRID}"/>'
        )
        self.parts.append(text(self.left - 8, at + 4, label, anchor="end", colour=FAINT))


def dots(panel: Panel, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], colour: str) -> str:
    """Small squares as one path, which is a tenth of the size of as many circles."""
    moves = "".join(
        f"M{panel.x(one):.1f} {panel.y(other):.1f}h1.6" for one, other in zip(x, y, strict=True)
    )
    return f'<path d="{moves}" stroke="{colour}" stroke-width="1.6" opacity="0.75" fill="none"/>'


def area(panel: Panel, heights: npt.NDArray[np.float64], colour: str) -> str:
    """Heights of bins side by side, as shares of the panel, filled down to its ground."""
    # Each run of bins that are not zero is an area of its own, so that phases do not join.
    path, bins = "", len(heights)
    for run in np.split(np.arange(bins), np.flatnonzero(np.diff(heights > 0)) + 1):
        if heights[run[0]] <= 0:
            continue
        path += f"M{panel.x(run[0] / bins):.1f} {panel.y(0):.1f}"
        for one in run:
            y = panel.y(float(heights[one]))
            path += f"L{panel.x(one / bins):.1f} {y:.1f}L{panel.x((one + 1) / bins):.1f} {y:.1f}"
        path += f"L{panel.x((run[-1] + 1) / bins):.1f} {panel.y(0):.1f}Z"
    return f'<path d="{path}" fill="{colour}" fill-opacity="0.8"/>'


def round_up(value: float) -> float:
    """The next round number."""
    power = 10.0 ** np.floor(np.log10(max(value, 1.0)))
    return float(next(power * one for one in (1, 1.5, 2, 3, 4, 6, 8, 10) if power * one >= value))


def short(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.3g} M"
    return f"{value / 1e3:.3g} k" if value >= 1e3 else f"{value:.0f}"


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 12,
    weight: int = 400,
    anchor: str = "start",
    colour: str = INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" '
        f'text-anchor="{anchor}" fill="{colour}">{escape(words)}</text>'
    )
