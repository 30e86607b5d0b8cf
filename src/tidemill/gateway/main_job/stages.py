"""The main job, step by step; any claim that does not hold raises `tm.Bug`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import tidemill as tm
from tidemill.gateway.demo.devices import Ack
from tidemill.gateway.demo.telemetry import DEVICES, START_NS, TIME_NS
from tidemill.gateway.main_job.devices import dying_devices, missing, push_all, queue_folder
from tidemill.gateway.main_job.driver import Driver
from tidemill.gateway.main_job.proof import prove
from tidemill.gateway.main_job.readings import SCHEMA, Readings
from tidemill.gateway.main_job.story import Stage, Story
from tidemill.progress import Progress
from tidemill.spark import merge, session
from tidemill.spark.pipelines.status import SinkStatus

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KILLED_AT = 0.6  # of all readings
FEW = 3_000_000  # rows that the three sinks have before them
SAMPLES = 4_000  # rows of the log in the report


class Stages:
    """One run of the main job."""

    def __init__(
        self,
        items: int,
        folder: Path,
        *,
        tell: Callable[[str], None],  # takes a line for people
        progress: Callable[[str], AbstractContextManager[Progress]],
    ) -> None:
        self._readings = Readings(items)
        self._folder = folder
        self._tell = tell
        self._progress = progress
        self.story = Story(items)

    def run(self) -> Story:
        """Do it all, and return what was measured."""
        self._folder.mkdir(parents=True, exist_ok=True)
        acknowledged = self._push_until_killed()
        rest = missing(self._folder, self._readings, acknowledged)
        spark = session("tidemill demo", progress=False)
        try:
            self.story.merged_first = self._merge(spark, "merge", "merged into one log")
            driver = Driver(self._folder)
            self._run_pipeline(driver, "pipeline", is_to_be_killed=True)
            self._push_rest(rest)
            self._merge(spark, "merge again", "merged behind it, up to minutes late")
        finally:
            spark.stop()
        self._run_pipeline(driver, "pipeline again", is_to_be_killed=False)
        with self.story.stage("proof", "every number held against what went in") as stage:
            prove(self._folder, self._readings, self.story)
            stage.rows = self._readings.items
        self._sample()
        self._tell(f"{len(self.story.checks)} claims hold: nothing lost, nothing twice")
        return self.story

    def _push_until_killed(self) -> set[tuple[int, int]]:
        """Let a process of devices push and die; returns which pushes it had acknowledged."""
        items = self._readings.items
        acknowledged: set[tuple[int, int]] = set()
        title = f"{DEVICES} devices push to queues of their own, each batch synced"
        with (
            self.story.stage("push", title) as stage,
            self._progress("pushing") as progress,
            dying_devices(self._folder, items, max(int(items * KILLED_AT), 1)) as acks,
        ):
            for ack in acks:
                acknowledged.add((ack.device, ack.batch))
                stage.rows += ack.rows
                progress.show(stage.rows, stage.rows / items)
            stage.is_killed = True
        self._report(stage)
        return acknowledged

    def _push_rest(self, rest: dict[int, list[tuple[int, np.ndarray]]]) -> None:
        """The devices push what had not arrived, and a heartbeat each."""
        total = sum(len(some) for batches in rest.values() for _, some in batches)
        with (
            self.story.stage("push again", "the devices push the rest") as stage,
            self._progress("pushing the rest") as progress,
        ):

            def acknowledge(ack: Ack) -> None:
                stage.rows += ack.rows
                progress.show(stage.rows, stage.rows / max(total, 1))

            push_all(self._folder, self._readings, rest, acknowledge)
            for device in range(DEVICES):
                with tm.PriorityQueue(queue_folder(self._folder, device), schema=SCHEMA) as queue:
                    queue.push(self._readings.heartbeat(device), key="ts")
        self._report(stage)

    def _merge(self, spark: SparkSession, name: str, title: str) -> int:
        """All queues into the log, in the order of time; returns the last number of the log."""
        paths = [queue_folder(self._folder, device) for device in range(DEVICES)]
        with self.story.stage(name, title) as stage, self._progress("merging") as progress:
            merged = merge(
                spark,
                paths,
                self._folder / "readings",
                key="measured_ns",
                on_progress=progress.show,
            )
            stage.rows = merged.rows
        self._report(stage)
        return merged.last

    def _run_pipeline(self, driver: Driver, name: str, *, is_to_be_killed: bool) -> None:
        title = "windows, archive and bad rows by a pipeline on Spark"
        before = _behind(driver.look())
        with self.story.stage(name, title) as stage, self._progress(name) as progress:

            def look(sinks: list[SinkStatus]) -> bool:
                left = _behind(sinks)
                stage.rows = before - left
                progress.show(stage.rows, stage.rows / max(before, 1))
                # Few readings are one batch, and it is killed within that.
                begun = any(sink.is_in_batch for sink in sinks) and before <= FEW
                done = any(sink.last_batch is not None for sink in sinks)
                return is_to_be_killed and (begun or done)

            stage.is_killed = driver.run(look)
        self._report(stage)

    def _sample(self) -> None:
        """Some rows of the log for the report: where they are, and when they were measured."""
        seqs, times = [], []
        with tm.Log(str(self._folder / "readings")) as log:
            end = log.ends().next
            stride = max(end // SAMPLES, 1)
            for start in range(1, end, 100_000):
                batch = log.read(start=start, rows_max=100_000).to_arrow()
                chosen = slice(-start % stride, None, stride)
                seqs.append(batch.column("seq").to_numpy()[chosen])
                times.append(batch.column("measured_ns").to_numpy()[chosen])
        shares = (np.concatenate(times) - START_NS) / TIME_NS
        is_reading = shares <= 1
        self.story.log_seqs = np.concatenate(seqs)[is_reading]
        self.story.log_times = shares[is_reading]

    def _report(self, stage: Stage) -> None:
        figures = f"{stage.rows:,} rows in {stage.seconds:.1f} s, {stage.rate:,} per second"
        killed = "; killed by SIGKILL in the middle" if stage.is_killed else ""
        self._tell(f"{stage.title}: {figures}{killed}")


def _behind(sinks: list[SinkStatus]) -> int:
    """Rows that the sinks have before them, all together."""
    return sum(sink.lag or 0 for sink in sinks)
