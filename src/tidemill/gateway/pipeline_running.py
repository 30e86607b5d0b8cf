"""Runs pipelines for the command line: bars while they run, and an end between two batches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tidemill.errors import TidemillError
from tidemill.gateway.console import Console
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.refusal import Stopped
from tidemill.progress import Bars
from tidemill.shown import counted

if TYPE_CHECKING:  # Who runs no pipeline need not have Spark.
    from tidemill.spark.pipelines.run import Run, SinkProgress

_LOOK_S = 0.2


class Watched:
    """Pipelines that run side by side, until all have ended or somebody stops them."""

    def __init__(self, starts: dict[str, Callable[[], Run]], console: Console) -> None:
        self._starts = starts
        self._console = console
        self._runs: dict[str, Run] = {}
        self._bars = console.bars()

    def run(self, interrupts: Interrupts) -> None:
        """Start them, and see them through; say what came of it in any case.

        The first interrupt ends each behind the batch that it is in, a second one at once.
        """
        try:
            with ExitStack() as stack, interrupts.held():
                for name, start in self._starts.items():
                    self._runs[name] = stack.enter_context(start())
                    interrupts.check()
                try:
                    while not self._are_over():
                        interrupts.check()
                except KeyboardInterrupt:
                    self._stop_behind_batch(interrupts)
                    raise
        except KeyboardInterrupt:
            self.say()
            raise
        except TidemillError as error:
            self._wipe()
            raise Stopped(error, self._words(), self._document()) from error
        self.say()

    def _stop_behind_batch(self, interrupts: Interrupts) -> None:
        for run in self._runs.values():
            run.stop(on_wait=interrupts.check)

    def say(self) -> None:
        """What came of it."""
        self._wipe()
        self._console.result(self._words(), self._document())

    def _are_over(self) -> bool:
        over = [run.wait(_LOOK_S / len(self._runs)) for run in self._runs.values()]
        if self._bars is not None:
            self._show(self._bars)
        return all(over)

    def _show(self, bars: Bars) -> None:
        bars.show(
            [
                (_heading(name, sink, done), done.rows, done.share)
                for name, run in self._runs.items()
                for sink, done in run.progress().items()
            ]
        )

    def _wipe(self) -> None:
        if self._bars is not None:
            self._bars.wipe()

    def _words(self) -> str:
        lines = [
            f"{name}.{sink}: {_told(done)}"
            for name, run in self._runs.items()
            for sink, done in run.progress().items()
        ]
        return "\n".join(lines) or "nothing was run"

    def _document(self) -> dict[str, Any]:
        return {
            "pipelines": {
                name: {sink: asdict(done) for sink, done in run.progress().items()}
                for name, run in self._runs.items()
            }
        }


def _heading(name: str, sink: str, done: SinkProgress) -> str:
    batch = "" if done.last_batch is None else f" batch {done.last_batch}"
    return f"{name}.{sink}{batch}"


def _told(done: SinkProgress) -> str:
    parts = [f"{counted(done.rows, 'row')} in {_batches(done.batches)}"]
    if done.written is not None:
        parts.append(f"{done.written:,} written")
    if done.lag is not None:
        parts.append(f"{done.lag:,} behind")
    return ", ".join(parts)


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number:,} batches"
