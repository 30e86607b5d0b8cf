"""`tidemill ring watch`: how full a ring is, again and again."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time

from tidemill.gateway.arguments import add_looks, add_ring
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.ring_opening import info_document, open_ring
from tidemill.progress import bar
from tidemill.records.ring import RingInfo

DETAILS = """
On a terminal the lines are drawn over: a bar for the ring and one for each group, with what was put
in and taken out per second. Elsewhere each look is a line, with --json a JSON document. Ctrl-C ends
it.
"""


class _Picture:
    """Draws one look over the last."""

    def __init__(self) -> None:
        self._drawn = 0

    def show(self, lines: list[str]) -> None:
        columns = shutil.get_terminal_size().columns
        if self._drawn:
            sys.stdout.write(f"\x1b[{self._drawn}F\x1b[J")
        sys.stdout.write("".join(f"{line[: columns - 1]}\n" for line in lines))
        sys.stdout.flush()
        self._drawn = len(lines)


def _run(options: argparse.Namespace, console: Console) -> None:
    every_s = options.every.total_seconds()
    draws = sys.stdout is not None and sys.stdout.isatty() and not console.is_json
    picture = _Picture() if draws else None
    with open_ring(options) as ring:
        before: tuple[RingInfo, float] | None = None
        looks = 0
        try:
            while True:
                info, now_s = ring.info(), time.monotonic()
                rates = _rates(before, info, now_s)
                if console.is_json:
                    console.line_now(json.dumps({"ring": ring.name, **info_document(info)}))
                elif picture is not None:
                    picture.show(_bars(ring.name, info, rates))
                else:
                    console.line_now(_line(ring.name, info, rates))
                before, looks = (info, now_s), looks + 1
                if looks == options.looks:
                    return
                time.sleep(every_s)
        except KeyboardInterrupt:
            return  # That is how one ends it.


def _rates(before: tuple[RingInfo, float] | None, info: RingInfo, now_s: float) -> str:
    """What went in, and left for good, since the last look."""
    if before is None:
        return ""
    passed_s = max(now_s - before[1], 1e-6)
    put = (info.tail - before[0].tail) / passed_s
    taken = (info.head - before[0].head) / passed_s
    return f"  +{put:,.0f}/s  -{taken:,.0f}/s"


def _line(name: str, info: RingInfo, rates: str) -> str:
    groups = "  ".join(f"{group} {length:,}" for group, length in info.groups.items())
    return f"{name}  {info.length:,} of {info.capacity:,}{rates}  {groups}"


def _bars(name: str, info: RingInfo, rates: str) -> list[str]:
    """A bar for the ring, and one for each group.

    >>> info = RingInfo(4, 2, 0, 2, 1, 5, 9, 1, 0, 3, False, {"default": 2})
    >>> print("\\n".join(_bars("alerts", info, "")))
    alerts   ━━━━━━━━━━━━──────────── 2 of 4
    default  ━━━━━━━━━━━━──────────── 2
    """
    width = max(len(one) for one in (name, *info.groups))
    locked = "  locked" if info.locked else ""
    lines = [
        f"{name.ljust(width)}  {bar(info.length / info.capacity)} "
        f"{info.length:,} of {info.capacity:,}{rates}{locked}"
    ]
    return lines + [
        f"{group.ljust(width)}  {bar(length / info.capacity)} {length:,}"
        for group, length in info.groups.items()
    ]


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser)
    add_looks(parser)
    parser.add_argument(
        "--buffers", metavar="URL", help="the entries are in another store, at this address"
    )


WATCH_COMMAND = Command(
    name="watch",
    summary="show how full a ring is, again and again",
    details=DETAILS,
    examples=("tidemill ring watch redis://localhost/alerts --every 5s",),
    arguments=_arguments,
    run=_run,
)
