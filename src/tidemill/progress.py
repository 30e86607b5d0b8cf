"""A bar for long work, on a terminal: how much is done, how fast, and how long it will take."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Sequence
from typing import TextIO

from tidemill.closing import Closing

_BETWEEN_S = 0.1
_BAR_LENGTH = 24


class Progress(Closing):
    """Takes note of progress; this one shows nothing.

    >>> with Progress() as progress:
    ...     progress.show(10, 0.5)
    """

    def show(self, rows: int, share: float | None = None) -> None:
        """So many rows (or tasks) are done, which is this share of all, if that is known."""

    def close(self) -> None:
        pass


NO_PROGRESS = Progress()


class Bar(Progress):
    """Draws over one line, ten times a second at most, and wipes it in the end."""

    def __init__(self, what: str, stream: TextIO, *, unit: str = "rows") -> None:
        self._what = what
        self._stream = stream
        self._unit = unit
        self._start_s = time.monotonic()
        self._shown_s = 0.0

    def show(self, rows: int, share: float | None = None) -> None:
        now_s = time.monotonic()
        if now_s - self._shown_s < _BETWEEN_S:
            return
        self._shown_s = now_s
        line = draw(self._what, rows, share, now_s - self._start_s, unit=self._unit)
        columns = shutil.get_terminal_size().columns
        self._stream.write("\r\x1b[K" + line[: columns - 1])
        self._stream.flush()

    def wipe(self) -> None:
        """Leave a clean line."""
        self._stream.write("\r\x1b[K")
        self._stream.flush()

    def close(self) -> None:
        self.wipe()


class Bars:
    """Several lines that are drawn over, ten times a second at most, and wiped in the end."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._start_s = time.monotonic()
        self._shown_s = 0.0
        self._drawn = 0  # lines that stand on the terminal

    def show(self, bars: Sequence[tuple[str, int, float | None]]) -> None:
        """What each is about, how many rows are done, and which share of all, if that is known."""
        now_s = time.monotonic()
        if now_s - self._shown_s < _BETWEEN_S:
            return
        self._shown_s = now_s
        columns = shutil.get_terminal_size().columns
        width = max((len(what) for what, _, _ in bars), default=0)
        lines = [
            draw(what.ljust(width), rows, share, now_s - self._start_s)[: columns - 1]
            for what, rows, share in bars
        ]
        self.wipe()
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._drawn = len(lines)

    def wipe(self) -> None:
        """Leave no trace, for what is said next."""
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._stream.flush()
            self._drawn = 0


def can_draw() -> bool:
    """Whether a person is looking at standard error, on something that can draw."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return is_terminal and os.environ.get("TERM") != "dumb"


def bar(share: float) -> str:
    """How much of it is full.

    >>> bar(0.25)
    '━━━━━━──────────────────'
    """
    full = round(share * _BAR_LENGTH)
    return "━" * full + "─" * (_BAR_LENGTH - full)


def draw(what: str, rows: int, share: float | None, passed_s: float, *, unit: str = "rows") -> str:
    """The line that is shown.

    >>> draw("pushing", 1000, 0.5, 2.0)
    'pushing ━━━━━━━━━━━━──────────── 50 %  1,000 rows  500 rows/s  2 s left'
    >>> draw("pushing", 1000, None, 2.0)
    'pushing  1,000 rows  500 rows/s'
    """
    rate = f"{rows:,} {unit}  {rows / max(passed_s, 1e-6):,.0f} {unit}/s"
    if share is None:
        return f"{what}  {rate}"
    share = min(max(share, 0.0), 1.0)
    left = f"  {passed_s * (1 - share) / share:.0f} s left" if share else ""
    return f"{what} {bar(share)} {share * 100:.0f} %  {rate}{left}"
