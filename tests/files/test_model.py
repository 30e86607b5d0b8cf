"""The queue and its forks against a dumb model, whatever the order of calls.

Segments are tiny and the upkeep runs within the calls, so that carrying, retiring and merging of
frames happen all the time. Each fork must hold exactly what the model says, in its order and
with its arrival numbers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import tidemill as tm
from tests.faults.memory_fs import MemoryFileSystem
from tidemill.files.folder.folder_options import SyncMode
from tidemill.limits import INT64_MAX, INT64_MIN

FOLDER = Path("/queue")
MAIN = ""
NAMES = ("a", "b", "c", "d")

near = st.integers(-40, 40)
keys = st.one_of(near, near, st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX]))
counts = st.one_of(st.integers(0, 6), st.integers(7, 60), st.just(-1))
modes = st.sampled_from(["none", "data", "index", "full"])
buckets = st.sampled_from(
    [tm.Shift(0), tm.Shift(3), tm.Shift(), tm.Width(7), tm.Custom("tens", lambda keys: keys // 10)]
)


class Item(NamedTuple):
    """Sorts as a queue does."""

    key: int
    seq: int
    value: bytes


class GaveUp(Exception):
    """What the block of a read raises."""


class QueueAgainstModel(RuleBasedStateMachine):
    """Lists of items, one for each consuming end, against the real thing."""

    steps = 0  # of all examples together

    def __init__(self) -> None:
        super().__init__()
        self.fs = MemoryFileSystem()
        self.queue: tm.PriorityQueue | None = None
        self.ends: dict[str, tm.PriorityQueue | tm.Fork] = {}
        self.model: dict[str, list[Item]] = {MAIN: []}
        self.next_seq = 1
        self.values = 0

    @initialize(bucket=buckets, mode=modes, open_max=st.sampled_from([0, 1, 4]))
    def make(self, bucket: tm.Shift, mode: SyncMode, open_max: int) -> None:
        self.bucket = bucket
        self._open(mode, open_max)

    def _open(self, mode: SyncMode, open_max: int) -> None:
        self.queue = tm.PriorityQueue(
            FOLDER,
            bucket=self.bucket,
            sync=mode,
            buckets_open_max=open_max,
            file_system=self.fs,
            maintain_in_background=False,
            segment_bytes=16 * 1024,
        )
        self.ends = {MAIN: self.queue}
        for name in self.queue.forks():
            self.ends[name] = self.queue.fork(name)

    def _end(self, number: int) -> str:
        names = sorted(self.ends)
        return names[number % len(names)]

    def _pairs(self, given: list[int], size: int) -> list[tuple[int, bytes]]:
        pairs = []
        for key in given:
            self.values += 1
            pairs.append((key, f"{self.values}".encode().ljust(size, b".")))
        return pairs

    def _model_push(self, pairs: list[tuple[int, bytes]]) -> None:
        new = []
        for key, value in sorted(pairs, key=lambda pair: pair[0]):
            new.append(Item(key, self.next_seq, value))
            self.next_seq += 1
        for name, items in self.model.items():
            self.model[name] = sorted(items + new)

    def _model_choice(self, name: str, count: int, key_max: int | None) -> list[Item]:
        items = self.model[name]
        if key_max is not None:
            items = [item for item in items if item.key <= key_max]
        return items if count < 0 else items[:count]

    @rule(given=st.lists(keys, max_size=40), size=st.sampled_from([0, 8, 200]))
    def push(self, given: list[int], size: int) -> None:
        assert self.queue is not None
        pairs = self._pairs(given, size)
        receipt = self.queue.push(pairs)
        assert receipt.count == len(pairs)
        if pairs:
            assert (receipt.first, receipt.last) == (self.next_seq, self.next_seq + len(pairs) - 1)
        self._model_push(pairs)

    @rule(first=st.integers(0, 30), times=st.integers(2, 40), size=st.sampled_from([8, 300]))
    def push_one_at_a_time(self, first: int, times: int, size: int) -> None:
        """Many small frames, descending, as a stack would have it."""
        assert self.queue is not None
        for key in range(first, first - times, -1):
            pairs = self._pairs([key], size)
            self.queue.push(pairs)
            self._model_push(pairs)

    @rule(number=st.integers(0, 9), first=st.integers(-9, 30), times=st.integers(2, 30))
    def push_and_pop_in_turn(self, number: int, first: int, times: int) -> None:
        assert self.queue is not None
        name = self._end(number)
        for key in range(first, first - times, -1):
            pairs = self._pairs([key, key + 3], 100)
            self.queue.push(pairs)
            self._model_push(pairs)
            self._pop(name, 1, None)

    @rule(number=st.integers(0, 9), count=counts, key_max=st.one_of(st.none(), keys))
    def pop(self, number: int, count: int, key_max: int | None) -> None:
        self._pop(self._end(number), count, key_max)

    def _pop(self, name: str, count: int, key_max: int | None) -> None:
        expected = self._model_choice(name, count, key_max)
        assert _items(self.ends[name].pop(count, key_max=key_max)) == expected
        self._drop(name, expected)

    def _drop(self, name: str, popped: list[Item]) -> None:
        gone = set(popped)
        self.model[name] = [item for item in self.model[name] if item not in gone]

    @rule(number=st.integers(0, 9), count=counts, key_max=st.one_of(st.none(), keys))
    def peek(self, number: int, count: int, key_max: int | None) -> None:
        name = self._end(number)
        expected = self._model_choice(name, count, key_max)
        assert _items(self.ends[name].peek(count, key_max=key_max)) == expected

    @rule(
        number=st.integers(0, 9),
        count=counts,
        how=st.sampled_from(["pop", "keep", "raise"]),
        back=st.lists(keys, max_size=5),
        meanwhile=st.lists(keys, max_size=30),
        looks=st.lists(counts, max_size=2),
        key_max=st.one_of(st.none(), keys),
    )
    def read(
        self,
        number: int,
        count: int,
        how: str,
        back: list[int],
        meanwhile: list[int],
        looks: list[int],
        key_max: int | None,
    ) -> None:
        assert self.queue is not None
        name = self._end(number)
        expected = self._model_choice(name, count, key_max)
        pushed_back = self._pairs(back, 20)
        try:
            with self.ends[name].read(count, key_max=key_max) as read:
                assert _items(read.batch) == expected
                assert read.push(pushed_back) == len(pushed_back)
                # Pushes of others go on while the block runs, and are not popped by it.
                others = self._pairs(meanwhile, 500)
                self.queue.push(others)
                self._model_push(others)
                for look in looks:
                    found = _items(self.ends[name].peek(look))
                    assert found == self._model_choice(name, look, None)
                if how == "keep":
                    read.keep()
                if how == "raise":
                    raise GaveUp
        except GaveUp:
            return
        if how == "pop":
            self._drop(name, expected)
        if pushed_back:
            self._model_push(pushed_back)

    @rule(number=st.integers(0, 9), first=st.integers(-9, 30), times=st.integers(2, 9), look=counts)
    def push_and_read_in_turn(self, number: int, first: int, times: int, look: int) -> None:
        """With a look beyond what the read will pop."""
        assert self.queue is not None
        name = self._end(number)
        for key in range(first, first - times, -1):
            pairs = self._pairs([key, key + 3, key + 9], 20)
            self.queue.push(pairs)
            self._model_push(pairs)
            expected = self._model_choice(name, 2, None)
            with self.ends[name].read(2) as read:
                assert _items(read.batch) == expected
                assert _items(self.ends[name].peek(look)) == self._model_choice(name, look, None)
            self._drop(name, expected)

    @rule(number=st.integers(0, 9), one=keys, other=keys)
    def delete(self, number: int, one: int, other: int) -> None:
        name = self._end(number)
        low, high = min(one, other), max(one, other)
        kept = [item for item in self.model[name] if not low <= item.key <= high]
        assert self.ends[name].delete(low, high) == len(self.model[name]) - len(kept)
        self.model[name] = kept

    @rule(number=st.integers(0, 9))
    def clear(self, number: int) -> None:
        name = self._end(number)
        assert self.ends[name].clear() == len(self.model[name])
        self.model[name] = []

    @rule(number=st.integers(0, 9), name=st.sampled_from(NAMES))
    def fork(self, number: int, name: str) -> None:
        parent = self._end(number)
        self.ends[name] = self.ends[parent].fork(name)
        self.model.setdefault(name, list(self.model[parent]))

    @precondition(lambda self: len(self.ends) > 1)
    @rule(number=st.integers(0, 9))
    def remove(self, number: int) -> None:
        names = sorted(name for name in self.ends if name != MAIN)
        name = names[number % len(names)]
        fork = self.ends.pop(name)
        assert isinstance(fork, tm.Fork)
        fork.remove()
        del self.model[name]
        with pytest.raises(tm.ForkRemoved):
            fork.pop()

    @rule(mode=modes, open_max=st.sampled_from([0, 1, 4]))
    def reopen(self, mode: SyncMode, open_max: int) -> None:
        assert self.queue is not None
        self.queue.close()
        self._open(mode, open_max)

    @rule(mode=modes)
    def die_and_reopen(self, mode: SyncMode) -> None:
        """The process ends in the middle of nothing: all that was written is still there."""
        self.fs.die()
        self._open(mode, 4)

    @rule()
    def sync(self) -> None:
        assert self.queue is not None
        self.queue.sync()

    @rule()
    def look_at_everything(self) -> None:
        """A rule rather than an invariant: looking loads what other rules should find unloaded."""
        for name, end in self.ends.items():
            assert _items(end.peek(-1)) == self.model[name]

    @invariant()
    def every_end_has_as_many_items_as_the_model(self) -> None:
        if self.queue is None:
            return
        type(self).steps += 1
        assert {MAIN, *self.queue.forks()} == self.model.keys()
        assert self.queue.stats().next_seq == self.next_seq
        for name, end in self.ends.items():
            assert len(end) == len(self.model[name])

    def teardown(self) -> None:
        if self.queue is not None:
            self.look_at_everything()
            self.queue.close()


def _items(batch: tm.Batch) -> list[Item]:
    return [
        Item(key, seq, value)
        for (key, value), seq in zip(batch.rows(), batch.seqs.to_pylist(), strict=True)
    ]


def _run(examples: int, steps: int, report: Callable[[str], None]) -> int:
    """Returns how many steps were taken."""
    before = QueueAgainstModel.steps
    run_state_machine_as_test(
        QueueAgainstModel, settings=settings(max_examples=examples, stateful_step_count=steps)
    )
    taken = QueueAgainstModel.steps - before
    report(f"model of the queue: {taken} steps")
    return taken


def test_the_queue_and_its_forks_do_what_a_dumb_model_does(report: Callable[[str], None]) -> None:
    assert _run(20, 30, report) > 300


@pytest.mark.slow
def test_the_queue_and_its_forks_do_so_for_thousands_of_steps(
    report: Callable[[str], None],
) -> None:
    soak = os.environ.get("TIDEMILL_SOAK") == "1"
    assert _run(20_000 if soak else 150, 50, report) > 3_000
