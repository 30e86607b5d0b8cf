"""A log driven at random beside a dumb model, over memory and over a folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import tidemill as tm
from tidemill.log.contract import LogStore
from tidemill.log.memory import Shelf
from tidemill.log.on_files.store import FileLog
from tidemill.log.publisher import Publisher
from tidemill.log.receiver import Receiver

NAMES = st.sampled_from(["a", "b", "c"])


class Model(RuleBasedStateMachine):
    """What a log must do, said with a list, a dict and a set."""

    make: Callable[[Path], LogStore]

    def __init__(self) -> None:
        super().__init__()
        self._folder = Path(tempfile.mkdtemp())
        self._open()
        self._rows: list[bytes] = []
        self._first = 1
        self._pointers: dict[str, int] = {}
        self._numbers = 0
        self._made = 0

    def _open(self) -> None:
        self._store = type(self).make(self._folder)
        self._out = Publisher(self._store, producer="p")

    def _new_rows(self, count: int) -> list[bytes]:
        self._made += count
        return [b"row %d" % number for number in range(self._made - count, self._made)]

    @rule(count=st.integers(0, 5), soon=st.booleans())
    def send(self, count: int, soon: bool) -> None:
        rows = self._new_rows(count)
        receipt = self._out.send_soon(rows).result(60) if soon else self._out.send(rows)
        assert receipt.count == count
        if count:
            assert (receipt.first, receipt.last) == (self._next, self._next + count - 1)
        self._rows += rows

    @rule(count=st.integers(0, 3), repeats=st.integers(1, 3))
    def send_numbered(self, count: int, repeats: int) -> None:
        rows = self._new_rows(count)
        self._numbers += 1
        receipts = [self._out.send(rows, number=self._numbers) for _ in range(repeats)]
        assert len({(one.first, one.last) for one in receipts}) == 1
        self._rows += rows

    @rule()
    def take_over(self) -> None:
        old, self._out = self._out, Publisher(self._store, producer="p")
        with pytest.raises(tm.Fenced):
            old.send(b"too late")
        old.close()

    @rule()
    def reopen(self) -> None:
        self._out.close()
        if not isinstance(self._store, FileLog):
            self._out = Publisher(self._store, producer="p")
            return
        self._store.close()
        self._open()

    @rule(name=NAMES, data=st.data())
    def receive(self, name: str, data: st.DataObject) -> None:
        pointer = self._pointers.setdefault(name, self._first - 1)
        if pointer + 1 < self._first:
            with Receiver(self._store, name, follow=False) as receiver:
                if self._first < self._next or pointer + 1 < self._next:
                    with pytest.raises(tm.Trimmed):
                        receiver.receive()
            return
        rows_max = data.draw(st.integers(1, 7))
        with Receiver(self._store, name, follow=False, rows_max=rows_max) as receiver:
            assert receiver.pointer == pointer
            seen: list[bytes] = []
            for batch in receiver:
                assert batch.first_seq == pointer + 1 + len(seen)
                seen += batch.rows()
            assert seen == self._rows[pointer:]
            acked = data.draw(st.sets(st.integers(pointer + 1, max(pointer + 1, self._next - 1))))
            acked = {seq for seq in acked if seq < self._next}
            for seq in data.draw(st.permutations(sorted(acked))):
                receiver.ack(seq)
            while pointer + 1 in acked:
                pointer += 1
            assert receiver.pointer == pointer
        self._pointers[name] = pointer

    @rule(name=NAMES)
    def remove_consumer(self, name: str) -> None:
        self._store.remove_consumer(name)
        self._pointers.pop(name, None)

    @rule(before=st.integers(1, 60), force=st.booleans())
    def trim(self, before: int, force: bool) -> None:
        bound = min(before, self._next)
        if not force:
            bound = min([bound, *(pointer + 1 for pointer in self._pointers.values())])
        self._first = max(self._first, bound)
        assert self._store.trim(before, force=force) == self._first

    @precondition(lambda self: self._first < self._next)
    @rule(data=st.data())
    def read(self, data: st.DataObject) -> None:
        start = data.draw(st.integers(self._first, self._next - 1))
        rows_max = data.draw(st.integers(1, 20))
        found = self._store.read(start, rows_max=rows_max, bytes_max=2**20)
        rows = [row for batch in found for row in batch.rows()]
        assert 1 <= len(rows) <= rows_max
        assert rows == self._rows[start - 1 : start - 1 + len(rows)]

    @invariant()
    def ends_and_pointers_agree(self) -> None:
        assert self._store.ends() == (self._first, self._next)
        found = {name: state.pointer for name, state in self._store.consumers().items()}
        assert found == self._pointers

    @property
    def _next(self) -> int:
        return len(self._rows) + 1

    def teardown(self) -> None:
        self._out.close()
        self._store.close()
        shutil.rmtree(self._folder)


class MemoryModel(Model):
    make = staticmethod(lambda folder: Shelf().open())


class LanesModel(Model):
    make = staticmethod(lambda folder: Shelf(lanes=3).open())


class FilesModel(Model):
    make = staticmethod(
        lambda folder: FileLog(folder / "log", sync="none", segment_bytes=16 * 1024)
    )


TestMemoryModel = MemoryModel.TestCase
TestLanesModel = LanesModel.TestCase
TestFilesModel = FilesModel.TestCase
TestFilesModel.settings = settings(max_examples=40, stateful_step_count=30)
for case in (TestFilesModel, TestLanesModel):
    pytest.mark.slow(case)
