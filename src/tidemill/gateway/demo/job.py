"""The demonstration, step by step; any claim that does not hold raises `tm.Bug`.

devices push ──▶ kill -9 ──▶ open ──▶ audit ──▶ devices push the rest ──▶ pop all ──▶ audit rest
                                        │
             acknowledged ⊆ found ⊆ attempted, each push whole or not there, nothing twice
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

import tidemill as tm
from tidemill.gateway.demo.devices import Ack, push_batches, read_acks
from tidemill.gateway.demo.inventory import Inventory
from tidemill.gateway.demo.picture import draw
from tidemill.gateway.demo.record import Phase, Record
from tidemill.gateway.demo.telemetry import DEVICES, Telemetry

POP_ROWS = 20_000
KILLED_AT = 0.6  # of all events
SAMPLES = 3_000  # events in the picture


class Showing(Protocol):
    """Shows how far something has come."""

    def show(self, rows: int, share: float | None = None) -> None: ...


class Demo:
    """One run of the demonstration."""

    def __init__(
        self,
        items: int,
        path: Path,
        *,
        tell: Callable[[str], None],  # takes a line for people
        progress: Callable[[str], AbstractContextManager[Showing]],
    ) -> None:
        self._telemetry = Telemetry(items)
        self._path = path
        self._tell = tell
        self._progress = progress
        self._batches = {device: self._telemetry.batches(device) for device in range(DEVICES)}
        self._audited = Inventory(self._telemetry)
        self.record = Record(items)

    def run(self) -> Record:
        """Do it all, and return what was measured."""
        acks = self._push_until_killed()
        start_s = time.monotonic()
        with tm.PriorityQueue(self._path) as queue:
            self.record.opened_s = time.monotonic() - start_s
            self._tell(
                f"opened again in {self.record.opened_s * 1000:,.0f} ms: "
                f"{len(queue):,} events are there"
            )
            self._audit(queue, acks)
            self._push_rest(queue)
            self._pop(queue)
            self._drain(queue.fork("audit"), "audit rest", "the audit's rest", self._audited)
            self._audited.check_complete()
        self._tell("every event came out once at each end, in the order of its time, as it went in")
        return self.record

    def draw(self, picture: Path) -> None:
        """Write the picture of the run."""
        picture.write_text(draw(self.record), encoding="utf-8")

    def _push_until_killed(self) -> set[tuple[int, int]]:
        """Let a process of devices push and die; returns which pushes it had acknowledged."""
        items, record = self._telemetry.items, self.record
        die_at = max(int(items * KILLED_AT), 1)
        phase = record.phase("push", f"{DEVICES} devices push, each batch synced")
        acks: set[tuple[int, int]] = set()
        with self._process(die_at) as pipe:
            told = read_acks(pipe)
            # The first is of no events, and says that the devices begin; until then they get ready.
            for start in told:
                phase.start_s = start.at_s
                break
            with self._progress("pushing") as progress:
                for ack in told:
                    acks.add((ack.device, ack.batch))
                    phase.step(ack.rows, ack.at_s)
                    record.acknowledged += ack.rows
                    progress.show(record.acknowledged, record.acknowledged / items)
        record.killed_s = time.monotonic()
        self._report(phase)
        self._tell(f"killed by SIGKILL, in the middle of pushing: {len(acks)} pushes acknowledged")
        return acks

    @contextmanager
    def _process(self, die_at: int) -> Iterator[int]:
        """The devices as a process that kills itself; gives the pipe of its acknowledgements."""
        reading, writing = os.pipe()
        arguments = [str(self._path), str(self._telemetry.items), str(die_at), str(writing)]
        # The same package as here, also where that is found by a path from another folder.
        package = Path(tm.__file__ or "").resolve().parents[1]
        paths = [str(package), os.environ.get("PYTHONPATH", "")]
        with subprocess.Popen(
            [sys.executable, "-m", "tidemill.gateway.demo.devices", *arguments],
            pass_fds=[writing],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        ) as process:
            os.close(writing)
            try:
                yield reading
                _, error = process.communicate()
            finally:
                process.kill()
                os.close(reading)
        if process.returncode != -signal.SIGKILL:
            raise tm.SurroundingsError(f"the devices could not push: {error.strip()}")

    def _audit(self, queue: tm.PriorityQueue, acks: set[tuple[int, int]]) -> None:
        """Pop all that is there from the audit's fork, and hold it against what was promised."""
        self._drain(queue.fork("audit"), "audit", "the audit pops what is there", self._audited)
        self.record.found = self._audited.count
        self.record.seq_at_kill = queue.stats().next_seq
        extra = 0
        for device, batches in self._batches.items():
            for number, events in enumerate(batches):
                is_there = self._audited.has(events)
                if (device, number) in acks and not is_there:
                    raise tm.Bug(f"an acknowledged push of device {device} is lost")
                extra += is_there and (device, number) not in acks
        self._tell(
            "nothing acknowledged is lost, nothing is doubled or changed; of the pushes that were "
            f"under way, {extra} had reached the disk, whole"
        )

    def _push_rest(self, queue: tm.PriorityQueue) -> None:
        """The devices push again what had not arrived."""
        rest = {
            device: [
                (number, events)
                for number, events in enumerate(batches)
                if not self._audited.has(events)
            ]
            for device, batches in self._batches.items()
        }
        phase = self.record.phase("push again", "the devices push the rest")
        with self._progress("pushing the rest") as progress:

            def acknowledge(ack: Ack) -> None:
                phase.step(ack.rows)
                done = phase.rows
                progress.show(done, done / max(self._telemetry.items - self.record.found, 1))

            push_batches(queue, self._telemetry, rest, acknowledge)
        self.record.disk_bytes_max = queue.stats().disk_bytes
        self._report(phase)

    def _pop(self, queue: tm.PriorityQueue) -> None:
        inventory = Inventory(self._telemetry)
        self._drain(queue, "pop", "all popped in order, each verified", inventory, sample=True)
        inventory.check_complete()

    def _drain(
        self,
        end: tm.PriorityQueue | tm.Fork,
        name: str,
        title: str,
        inventory: Inventory,
        *,
        sample: bool = False,
    ) -> None:
        """Pop until nothing is left."""
        phase = self.record.phase(name, title)
        total = len(end)
        stride = max(total // SAMPLES, 1)
        done = 0
        with self._progress(name) as progress:
            while True:
                popping_s = time.monotonic()
                batch = end.pop(POP_ROWS)
                phase.queue_s += time.monotonic() - popping_s
                if not len(batch):
                    break
                numbers = inventory.add(batch)
                if sample:
                    chosen = slice(-done % stride, None, stride)
                    self.record.numbers.append(numbers[chosen])
                    self.record.arrivals.append(batch.seqs.to_numpy()[chosen])
                done += len(batch)
                phase.step(len(batch))
                progress.show(done, done / total)
        if done != total:
            raise tm.Bug(f"{total:,} events were there, and {done:,} came out")
        self._report(phase)

    def _report(self, phase: Phase) -> None:
        figures = f"{phase.rows:,} events in {phase.seconds:.1f} s, {phase.rate:,} per second"
        if phase.queue_s:
            figures += f" ({phase.rows / phase.queue_s:,.0f} without the checks)"
        self._tell(f"{phase.title}: {figures}")


@contextmanager
def place(folder: Path | None) -> Iterator[Path]:
    """Where the queue lives: a folder that must be new or empty, or else a temporary one."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="tidemill-demo-") as temporary:
            yield Path(temporary) / "telemetry"
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise tm.InvalidInput(f"{folder} is not empty; name a new folder for the demonstration")
    yield folder
