"""A bar for long jobs, on the terminal: how many tasks of those that run are done.

A thread asks Spark a few times a second. What the program prints is never drawn over: the bar is
wiped before a call of the program to Spark returns. A thin client hears from its server instead.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO
from weakref import WeakSet

from pyspark.sql import SparkSession

from tidemill.progress import Bar

if TYPE_CHECKING:  # a thin client for Spark Connect has none
    from pyspark import SparkContext, StatusTracker

_LONG_S = 1.0  # Shorter jobs are not worth a bar.
_EVERY_S = 0.2

_watched: WeakSet[SparkContext] = WeakSet()


def show_jobs(spark: SparkSession, *, is_remote: bool) -> None:
    """Draw a bar on standard error while a long job of the session runs."""
    if is_remote:
        told: Any = _Told(_Line(sys.stderr))
        spark.registerProgressHandler(told)
    elif spark.sparkContext not in _watched:
        _watched.add(spark.sparkContext)
        _Watch(spark.sparkContext, _Line(sys.stderr)).start()


class _Line:
    """The line that the bar is on; threads take turns."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._bar: Bar | None = None
        self._is_drawn = False
        self._turn = threading.Lock()

    def begin(self) -> None:
        """A job began; nothing is drawn yet."""
        self._bar = Bar("Spark", self._stream, unit="tasks")

    def show(self, done: int, total: int) -> None:
        """So many tasks are done, of those that are known."""
        with self._turn:
            if self._bar is not None and total:
                self._bar.show(done, done / total)
                self._is_drawn = True

    def wipe(self) -> None:
        """Make room for what the program prints."""
        if self._is_drawn:
            with self._turn:
                self._is_drawn = False
                if self._bar is not None:
                    self._bar.wipe()


class _Watch(threading.Thread):
    """Asks an embedded Spark, until it stops."""

    def __init__(self, context: SparkContext, line: _Line) -> None:
        super().__init__(name="tidemill-progress", daemon=True)
        self._context = context
        self._line = line
        self._client: Any = context._gateway._gateway_client  # type: ignore[union-attr]
        self._since_s: dict[int, float] = {}  # when each running job was first seen

    def run(self) -> None:
        from py4j.protocol import Py4JError  # noqa: PLC0415 (nor has a thin client this)

        self._wrap()
        try:
            tracker = self._context.statusTracker()
            while self._context._jsc is not None:
                self._look(tracker)
                time.sleep(_EVERY_S)
        except (Py4JError, OSError, AttributeError):
            pass  # It stopped in this moment, or its Java is gone: whoever asks it next is told.
        finally:
            self._line.wipe()
            if vars(self._client).get("send_command") is self._send:
                del self._client.send_command

    def _wrap(self) -> None:
        """Have every call of the program to Spark wipe the line before it returns."""
        inner, us, line = self._client.send_command, threading.get_ident(), self._line

        def send(*arguments: Any, **options: Any) -> Any:
            try:
                return inner(*arguments, **options)
            finally:
                if threading.get_ident() != us:
                    line.wipe()

        self._send = self._client.send_command = send

    def _look(self, tracker: StatusTracker) -> None:
        now_s = time.monotonic()
        running = tracker.getActiveJobsIds()
        if running and not self._since_s:
            self._line.begin()
        self._since_s = {job: self._since_s.get(job, now_s) for job in running}
        long = [job for job, since_s in self._since_s.items() if now_s - since_s >= _LONG_S]
        if long:
            self._line.show(*_tasks(tracker, long))
        else:
            self._line.wipe()


def _tasks(tracker: StatusTracker, jobs: Iterable[int]) -> tuple[int, int]:
    """How many tasks of jobs are done, and how many there are."""
    known = [tracker.getJobInfo(job) for job in jobs]
    stages = {int(stage) for job in known if job is not None for stage in job.stageIds}
    found = [one for one in map(tracker.getStageInfo, stages) if one is not None]
    return sum(one.numCompletedTasks for one in found), sum(one.numTasks for one in found)


class _Told:
    """What a server tells of each operation while the program waits for it."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._since_s: dict[str | None, float] = {}

    def __call__(
        self,
        stages: Iterable[Any] | None,
        inflight_tasks: int,  # noqa: ARG002 (they are in the stages)
        operation_id: str | None,
        done: bool,
    ) -> None:
        now_s = time.monotonic()
        if done:
            self._since_s.pop(operation_id, None)
            self._line.wipe()
            return
        if not self._since_s:
            self._line.begin()
        if now_s - self._since_s.setdefault(operation_id, now_s) >= _LONG_S:
            known = list(stages or ())
            completed = sum(one.num_completed_tasks for one in known)
            self._line.show(completed, sum(one.num_tasks for one in known))
