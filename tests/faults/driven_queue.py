"""A queue in memory and its model, driven together, for every test that breaks the disk under it.

Each operation is noted in the model and in the trace before it is tried, and promised once it
returned and its sync mode says that it lasts. `judge` then opens what a fault left of the disk, and
accepts nothing but the state after the first k operations, acknowledged ≤ k ≤ attempted.
"""

from __future__ import annotations

import threading
from bisect import insort_right
from collections.abc import Callable, Iterable
from pathlib import Path

import xxhash

from tests.faults.checker import (
    ACKNOWLEDGED,
    ATTEMPTED,
    MAIN,
    Pair,
    PrefixModel,
    UniqueValues,
    Violation,
    bounds,
)
from tests.faults.fingerprint import fingerprint
from tests.faults.memory_fs import MemoryFileSystem
from tests.faults.trace import Image, Trace
from tidemill.files.disk.filesystem import FileSystem
from tidemill.files.folder.folder_options import CorruptionMode, SyncMode
from tidemill.files.journal.head import NAME as HEAD
from tidemill.files.queue.consuming_end import ConsumingEnd
from tidemill.files.queue.priority_queue import PriorityQueue
from tidemill.files.state.bucket import Width
from tidemill.files.upkeep.carry import drop

ROOT = Path("/queues/queue")
SEGMENT_BYTES = 16 * 1024
BUCKET = Width(100)
# Of every disk that is judged: an owner writes it down without having read it.
BOOT = bytes(16)


class StillClock:
    """A clock that only moves when asked, so that the same operations write the same bytes."""

    def __init__(self) -> None:
        self._now_ns = 1_700_000_000_000_000_000

    def time_ns(self) -> int:
        self._now_ns += 1_000
        return self._now_ns

    def monotonic_s(self) -> float:
        return self.time_ns() / 1e9

    def wait(self, condition: threading.Condition, timeout_s: float | None) -> bool:
        raise AssertionError("nothing here waits")


def open_queue(
    fs: FileSystem,
    *,
    path: Path = ROOT,
    sync: SyncMode = "full",
    on_corruption: CorruptionMode = "abort",
) -> PriorityQueue:
    return PriorityQueue(
        path,
        bucket=BUCKET,
        sync=sync,
        on_corruption=on_corruption,
        file_system=fs,
        clock=StillClock(),
        maintain_in_background=False,
        segment_bytes=SEGMENT_BYTES,
    )


def open_reader(fs: FileSystem) -> PriorityQueue:
    return PriorityQueue(ROOT, bucket=BUCKET, read_only=True, file_system=fs, clock=StillClock())


def end_of(queue: PriorityQueue, fork: str) -> ConsumingEnd:
    return queue if fork == MAIN else queue.fork(fork)


def contents(queue: PriorityQueue) -> dict[str, list[Pair]]:
    """What every fork would hand out, in order; also holds its length against it."""
    found = {}
    for fork in (MAIN, *queue.forks()):
        end = end_of(queue, fork)
        pairs = [(key, value) for key, value in end.peek(-1).rows()]
        if len(end) != len(pairs):
            raise Violation(f"fork {fork}: len is {len(end)}, but it hands out {len(pairs)}")
        found[fork] = pairs
    return found


def use(queue: PriorityQueue, found: dict[str, list[Pair]]) -> None:
    """Push one more item and pop everything: a recovered queue must work like any other."""
    extra = (150, b"pushed after the recovery")
    queue.push([extra])
    for fork, pairs in found.items():
        expected = list(pairs)
        insort_right(expected, extra, key=lambda pair: pair[0])
        end = end_of(queue, fork)
        popped = [*end.pop(2).rows(), *end.pop(-1).rows()]
        if popped != expected:
            raise Violation(f"fork {fork}: popped {popped} instead of {expected}")
        if len(end):
            raise Violation(f"fork {fork}: {len(end)} items are left after everything was popped")


class Judge:
    """Opens what faults left of disks, twice, and uses it; remembers which disks it has seen.

    Many crashes lead to the same disk once they were recovered from. What follows depends on that
    disk alone, so it is only looked at once. What a queue hands out that has just recovered depends
    on that disk and on what the recovery left in memory: it is read once for both.
    """

    def __init__(self, *, sync: SyncMode = "full") -> None:
        self.states = 0
        self._sync: SyncMode = sync
        self._crashed: set[bytes] = set()
        self._recovered: dict[bytes, dict[str, list[Pair]]] = {}
        self._read: dict[tuple[bytes, bytes], dict[str, list[Pair]]] = {}

    def is_new(self, image: Image, *promised: object) -> bool:
        """Whether this disk, with what had been promised by then, was never judged before."""
        key = xxhash.xxh3_128_digest(digest(image) + repr(promised).encode())
        if key in self._crashed:
            return False
        self._crashed.add(key)
        return True

    def judge(
        self, fs: MemoryFileSystem, model: PrefixModel, acknowledged: int, attempted: int
    ) -> int:
        """How many operations survived; raises `Violation` if that is too few, or in part."""
        self.states += 1
        fs.boot = BOOT
        queue = open_queue(fs, sync=self._sync)
        image = fs.image()
        recovered = digest(image)
        state = recovered, fingerprint(queue)
        found = self._read.get(state)
        if found is None:
            self._read[state] = found = contents(queue)
        count = model.check(found, acknowledged=acknowledged, attempted=attempted)
        fs.mark(ACKNOWLEDGED, count)
        fs.die()
        known = self._recovered.get(recovered)
        if known is None:
            self._use(image, found)
            self._recovered[recovered] = known = found
        if known != found:
            raise Violation(f"opened twice it is something else: {found}, then {known}")
        return count

    def _use(self, image: Image, found: dict[str, list[Pair]]) -> None:
        """Open a recovered disk again, and have everything handed out that was found."""
        queue = open_queue(MemoryFileSystem(image), sync=self._sync)
        lengths = {fork: len(end_of(queue, fork)) for fork in (MAIN, *queue.forks())}
        if lengths != {fork: len(pairs) for fork, pairs in found.items()}:
            raise Violation(f"opened twice it is something else: {found}, then {lengths}")
        use(queue, found)
        queue.close()


def digest(image: Image, *, with_head: bool = False) -> bytes:
    """A hash of all files of a disk, by their paths. The head is for readers, and whoever opens the
    folder as its owner writes it without having read it.
    """
    key = xxhash.xxh3_128()
    for path, inode in image.files().items():
        if path == str(ROOT / HEAD) and not with_head:
            continue
        content = image.contents[inode]
        key.update(f"{path} {content.size} {len(content.data)};".encode())
        key.update(content.data)
    return key.digest()


class DrivenQueue:
    """Operations on a queue, each noted in the model and marked in the trace."""

    def __init__(self, *, sync: SyncMode = "full") -> None:
        self.fs = MemoryFileSystem()
        self.disk: FileSystem = self.fs  # what the queue gets to see of it, if not all of it works
        self.fs.mark(ATTEMPTED, 0, promise=False)
        self.model = PrefixModel()
        self.sync_mode = sync
        self._values = UniqueValues()
        self._large = UniqueValues(1_000_000, length=5_000)
        # How many operations every crash leaves, because they came before the trace.
        self.base = 0
        self.queue = open_queue(self.disk, sync=sync)

    @classmethod
    def resumed(
        cls, fs: MemoryFileSystem, disk: FileSystem, found: dict[str, list[Pair]]
    ) -> DrivenQueue:
        """Go on with what a healthy disk holds, through one that may fail."""
        driven = cls.__new__(cls)
        driven.fs, driven.disk, driven.sync_mode = fs, disk, "full"
        driven.model = PrefixModel.holding(found)
        driven._values = UniqueValues(10_000)
        driven._large = UniqueValues(2_000_000, length=5_000)
        driven.base = 0
        driven.queue = open_queue(disk)
        return driven

    @property
    def _syncs_pushes(self) -> bool:
        return self.sync_mode in ("data", "full")

    @property
    def _syncs_takes(self) -> bool:
        return self.sync_mode in ("index", "full")

    def start_trace(self) -> None:
        """Everything so far lasts; crashes are looked for from here on."""
        self.queue.sync()
        self.model.acknowledge()
        self.fs.trace = Trace(self.fs.image())
        self.base = self.model.attempted

    def push(self, keys: Iterable[int]) -> None:
        pairs = self._values.pairs(keys)
        self._do(self.model.push(pairs), lambda: self.queue.push(pairs), self._syncs_pushes)

    def push_large(self, keys: Iterable[int]) -> None:
        """A push that fills segments."""
        pairs = self._large.pairs(keys)
        self._do(self.model.push(pairs), lambda: self.queue.push(pairs), self._syncs_pushes)

    def pop(self, fork: str, count: int) -> None:
        end = end_of(self.queue, fork)
        self._do(self.model.pop(fork, count), lambda: end.pop(count), self._syncs_takes)

    def read_and_push(self, fork: str, count: int, keys: Iterable[int]) -> None:
        """A read transaction that pushes something back."""
        pairs = self._values.pairs(keys)
        end = end_of(self.queue, fork)

        def work() -> None:
            with end.read(count) as read:
                read.push(pairs)

        lasts = self._syncs_takes or self._syncs_pushes
        self._do(self.model.pop_and_push(fork, count, pairs), work, lasts)

    def delete(self, fork: str, low: int, high: int) -> None:
        end = end_of(self.queue, fork)
        number = self.model.delete(fork, low, high)
        self._do(number, lambda: end.delete(low, high), self._syncs_takes)

    def clear(self, fork: str) -> None:
        end = end_of(self.queue, fork)
        self._do(self.model.clear(fork), end.clear, self._syncs_takes)

    def fork(self, name: str, parent: str) -> None:
        end = end_of(self.queue, parent)
        self._do(self.model.fork(name, parent), lambda: end.fork(name), True)

    def remove(self, name: str) -> None:
        fork = self.queue.fork(name)
        self._do(self.model.remove(name), fork.remove, True)

    def upkeep(self) -> None:
        """A round of maintenance: summaries, reclaim, carrying."""
        maintenance = self.queue._core.maintenance
        self._do(self.model.nothing("upkeep"), maintenance.run_round, False)

    def drop_oldest(self) -> None:
        """Give up the oldest sealed segment, as a queue with `bytes_max` does."""
        folder = self.queue._core.folder
        oldest = min(folder.journal.segments)
        if oldest == max(folder.journal.segments):
            return
        frames = folder.index.frames_of_segment(oldest)
        seqs = {int(seq) for entry in frames for seq in folder.reader.read(entry).seqs}
        self._do(self.model.drop(seqs), lambda: drop(folder, oldest), True)

    def look(self, *, dies: bool) -> None:
        """A reader beside the owner comes, looks, and goes, or is killed."""

        def work() -> None:
            reader = open_reader(self.disk)
            if contents(reader) != contents(self.queue):
                raise Violation("a reader sees something else than the owner")
            if dies:
                pin = reader._core.view._links.pin  # type: ignore[attr-defined]
                pin._lock.release()
            else:
                reader.close()

        self._do(self.model.nothing("look"), work, False)

    def consume(self) -> None:
        """A consumer reads all there is by arrival, and acks it."""

        def work() -> None:
            with self.queue.consumer("c", start="earliest") as consumer:
                batch = consumer.read(1_000)
                if batch.last is not None:
                    consumer.ack(batch.last.seq)

        self._do(self.model.nothing("consume"), work, False)

    def end_consumer(self) -> None:
        """The consumer is removed."""
        self._do(self.model.nothing("end"), lambda: self.queue.consumer("c").remove(), False)

    def sync(self) -> None:
        self._do(self.model.nothing("sync"), self.queue.sync, True)

    def reopen(self) -> None:
        def work() -> None:
            self.queue.close()
            self.queue = open_queue(self.disk, sync=self.sync_mode)

        self._do(self.model.nothing("close and open"), work, True)

    def kill(self) -> None:
        """End the process, but not the machine, and open again: what was found must then last."""

        def work() -> None:
            self.fs.die()
            self.queue = open_queue(self.disk, sync=self.sync_mode)

        self._do(self.model.nothing("kill and open"), work, True)

    def bounds_of(self, marks: Iterable[object]) -> tuple[int, int]:
        """How many operations must have survived a crash, and how many can have."""
        acknowledged, attempted = bounds(marks)
        return max(acknowledged, self.base), max(attempted, self.base)

    def _do(self, number: int, work: Callable[[], object], lasts: bool) -> None:
        self.fs.mark(ATTEMPTED, number, promise=False)
        work()
        if lasts:
            self.model.acknowledge()
            self.fs.mark(ACKNOWLEDGED, number)
