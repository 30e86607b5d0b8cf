"""Faults of a log put back one by one: the suites that are for them must find each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

import tidemill as tm
from tests.faults import test_log_crash_states as crash_states
from tests.log import test_original_faults as original
from tests.log import test_publisher
from tidemill.files.commit.log_operation import AppendRows, TrimRows
from tidemill.files.commit.operation import Operation, Retire
from tidemill.files.state.state import State
from tidemill.log.ack_window import AckWindow
from tidemill.log.contract import ConsumerClaim
from tidemill.log.memory import Shelf
from tidemill.log.numbering import Numbering
from tidemill.log.on_files import rows
from tidemill.log.on_files.consumers import Consumers
from tidemill.log.on_files.writer import FileWriter
from tidemill.log.producer import Producer
from tidemill.log.publisher import Publisher
from tidemill.log.receiver import Receiver

pytestmark = pytest.mark.slow

Patch: TypeAlias = pytest.MonkeyPatch


# The checks: parts of the other suites, small enough to run for each mutant.


def _crashes(*names: str) -> Callable[[Path], None]:
    return lambda path: crash_states._judge_states(names, "full", 60, set())


def _second_publisher(path: Path) -> None:
    original.test_a_second_publisher_overwrites_nothing(path)


def _double_acks(path: Path) -> None:
    original.test_a_double_ack_does_not_wedge_the_pointer(path)


def _missing_row(path: Path) -> None:
    original.test_a_missing_row_does_not_stall_in_silence(path)


def _order(path: Path) -> None:
    test_publisher.test_nothing_is_numbered_while_a_failure_is_on_its_way()


def _numbers(path: Path) -> None:
    for seed in range(20):
        shelf = Shelf(lanes=4)
        store = shelf.open()
        with Publisher(store, producer="loader") as out:
            test_publisher.TestProducers().test_numbers_are_written_in_order_whatever_fails(
                shelf, out, store, seed
            )


def _repeats(path: Path) -> None:
    with tm.Log(path) as log:
        first = log.publisher(producer="p").send([b"a"], number=1)
        # The folder stays open: it knows the mark from having written it.
        with log.publisher(producer="p") as out:
            assert out.send([b"a"], number=1) == first
        assert log.ends().next == 2


def _fenced_receiver(path: Path) -> None:
    with tm.Log(path) as log:
        log.publisher().send([b"a", b"b"])
        old = log.receiver("one")
        assert old.receive() is not None
        log.receiver("one").close()
        with pytest.raises(tm.Fenced):  # noqa: PT012 - its reader may have noticed before
            old.ack(1)
            old.close()


def _trailing_ack(path: Path) -> None:
    with tm.Log(path) as log:
        log.publisher().send([b"a", b"b"])
        with log.receiver("one") as receiver:
            batch = receiver.receive()
            assert batch is not None
            batch.ack()
        assert log.consumers() == {"one": 2}


# The faults.


def _no_fence(patch: Patch) -> None:
    patch.setattr(FileWriter, "_check", lambda self: None)


def _acks_are_counted(patch: Patch) -> None:
    def ack(self: AckWindow, first: int, last: int) -> bool:
        self.pointer += last - first + 1
        return True

    patch.setattr(AckWindow, "ack", ack)


def _holes_are_skipped(patch: Patch) -> None:
    def missing(self: rows.RowReader, first: int, last: int) -> Exception:
        raise tm.Trimmed("skip it", first=last + 1)

    patch.setattr(rows.RowReader, "_missing", missing)


def _numbers_go_on_after_a_failure(patch: Patch) -> None:
    reserve = Numbering.reserve
    patch.setattr(Numbering, "reserve", lambda self, count, after=None: reserve(self, count))


def _failed_numbers_are_passed(patch: Patch) -> None:
    patch.setattr(Producer, "is_stale", lambda self, send: False)
    patch.setattr(Producer, "take_back", lambda self, sends, error: self._under_way.clear())


def _marks_are_forgotten(patch: Patch) -> None:
    patch.setattr(AppendRows, "apply", Operation.apply)


def _tokens_are_not_compared(patch: Patch) -> None:
    patch.setattr("tidemill.log.on_files.consumers._read_token", lambda file: TOKEN)
    patch.setattr(
        Consumers,
        "_take",
        lambda self, file, name, pointer: ConsumerClaim(name, TOKEN, pointer),
    )


def _last_ack_waits_for_another(patch: Patch) -> None:
    store_pointer = Receiver._store_pointer

    def lazy(self: Receiver) -> bool:
        with self._mutex:
            if self._is_closed:
                return False
        return store_pointer(self)

    patch.setattr(Receiver, "_store_pointer", lazy)
    patch.setattr(Receiver, "_keep", lambda self: None)


def _trims_are_not_written(patch: Patch) -> None:
    def make(self: TrimRows, first: int, segments: list[int]) -> None:
        Retire.__init__(self, segments)
        self.first = first

    patch.setattr(TrimRows, "__init__", make)


def _confirmed_before_the_sync(patch: Patch) -> None:
    init = AppendRows.__init__

    def unsynced(self: AppendRows, first: int, prepared: Any, marks: Any, *, sync: bool) -> None:
        init(self, first, prepared, marks, sync=False)

    patch.setattr(AppendRows, "__init__", unsynced)


def _state_of_a_log_is_lost_with_its_segment(patch: Patch) -> None:
    to_json = State.to_json

    def bare(self: State, segments: Sequence[int], previous_end: int) -> bytes:
        log, self.log = self.log, type(self.log)()
        try:
            return to_json(self, segments, previous_end)
        finally:
            self.log = log

    patch.setattr(State, "to_json", bare)


TOKEN = 7


class Mutant(NamedTuple):
    put_back: Callable[[Patch], None]
    check: Callable[[Path], None]


MUTANTS = [
    Mutant(_no_fence, _second_publisher),
    Mutant(_acks_are_counted, _double_acks),
    Mutant(_holes_are_skipped, _missing_row),
    Mutant(_numbers_go_on_after_a_failure, _order),
    Mutant(_failed_numbers_are_passed, _numbers),
    Mutant(_marks_are_forgotten, _repeats),
    Mutant(_tokens_are_not_compared, _fenced_receiver),
    Mutant(_last_ack_waits_for_another, _trailing_ack),
    Mutant(_trims_are_not_written, _crashes("trim", "reopen")),
    Mutant(_confirmed_before_the_sync, _crashes("append many", "append one")),
    Mutant(_state_of_a_log_is_lost_with_its_segment, _crashes("roll", "kill")),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.put_back.__name__[1:])
def test_a_fault_that_is_put_back_is_found(
    mutant: Mutant, tmp_path: Path, monkeypatch: Patch
) -> None:
    mutant.put_back(monkeypatch)
    with pytest.raises((AssertionError, tm.TidemillError, pytest.fail.Exception)):
        mutant.check(tmp_path / "log")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.put_back.__name__[1:])
def test_without_the_fault_the_check_is_content(mutant: Mutant, tmp_path: Path) -> None:
    mutant.check(tmp_path / "log")
