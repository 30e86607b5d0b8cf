"""Rounds in which signals fall into the calls of the main thread while other threads work: what the
processes that are interrupted have in common.
"""

from __future__ import annotations

import faulthandler
import json
import shutil
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import tidemill as tm
from tests.interrupting import Interrupts

WITHIN_S = 60
ROUND_S_MAX = 600


def do_rounds(folder: Path, rounds: int, run: Callable[[Path], Counter[str]]) -> None:
    """Each has a folder of its own; how often each thing happened in all is printed as JSON."""
    happened: Counter[str] = Counter()
    for number in range(rounds):
        # Each round has as long: how many there are, and how fast the disk is, is nobody's fault.
        faulthandler.dump_traceback_later(ROUND_S_MAX, exit=True)
        path = folder / str(number)
        happened += run(path)
        shutil.rmtree(path)
    sys.stdout.write(json.dumps(happened))


def fall_into_calls(
    interrupts: Interrupts,
    calls: int,
    step: Callable[[], Callable[[], None]],
    over: threading.Event,
) -> Counter[str]:
    """Interrupt so many calls, each of them made by `step`, unless the round is over before. An
    error ends it, and is raised if it is none that an interrupt may lead to.
    """
    happened: Counter[str] = Counter()
    for _ in range(calls):
        if over.is_set():
            break
        failure = interrupts.fall_into(step())
        happened["nothing" if failure is None else type(failure).__name__] += 1
        if isinstance(failure, tm.StorageFailed):
            break
        if failure is not None and not isinstance(failure, KeyboardInterrupt):
            raise failure
    return happened


def join(threads: Iterable[threading.Thread]) -> None:
    """Wait for the other threads, none of which may wait for ever."""
    for thread in threads:
        thread.join(WITHIN_S)
        if thread.is_alive():
            faulthandler.dump_traceback()
            raise AssertionError("a thread waits for ever behind an interrupt")
