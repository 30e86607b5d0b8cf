"""What is left where a step breaks off, by an interrupt, for want of memory, or by a fault."""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

import tidemill as tm
from tests.counters.nodes import meet, node, values
from tests.services.server import free_port
from tidemill.counters import Ledger, Message, Node, Replica, journal
from tidemill.counters.journal import Journal
from tidemill.counters.replication.link import Link
from tidemill.counters.replication.mesh import Mesh
from tidemill.counters.replication.server import Server
from tidemill.counters.table import Table

NEVER_MS = 10**7  # so that only the test saves

Patch = pytest.MonkeyPatch


def breaks_once(
    patch: Patch, owner: type | ModuleType, name: str, failure: type[BaseException] = MemoryError
) -> threading.Event:
    """Let the next call of a function fail; what comes later is as ever. Set once it has failed."""
    real = getattr(owner, name)
    broken = threading.Event()

    def breaking(*values: Any, **options: Any) -> Any:
        if broken.is_set():
            return real(*values, **options)
        broken.set()
        raise failure("in the middle")

    patch.setattr(owner, name, breaking)
    return broken


class Cut:
    """An interrupt before the given line, of all that the counters go through in a call."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.where = ""  # it came

    def __call__(self, frame: FrameType, event: str, arg: object) -> Cut | None:
        if not frame.f_globals["__name__"].startswith("tidemill.counters."):
            return None
        if event == "line" and not self.where and not _takes_no_signal(frame):
            if not self.left:
                self.where = f"{frame.f_code.co_qualname}, line {frame.f_lineno}"
                raise KeyboardInterrupt
            self.left -= 1
        return self


def _takes_no_signal(frame: FrameType) -> bool:
    """Between the end of a block and the release of its lock, and where there is nothing to do."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return line.lstrip().startswith(("with ", "try:"))


def interrupted(at: int, call: Callable[[], object]) -> str:
    """Call it, with an interrupt at that line; where that was, or nothing if it came to its end."""
    cut, before = Cut(at), sys.gettrace()
    sys.settrace(cut)
    try:
        call()
    except KeyboardInterrupt:
        assert cut.where
    finally:
        sys.settrace(before)
    return cut.where


# Saving.


def test_a_fault_in_a_save_stops_counting_until_the_next_one(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS) as one:
        one.upsert("x", 5)
        breaks_once(monkeypatch, journal, "encode_rows")
        with pytest.raises(MemoryError):
            one.save()
        with pytest.raises(tm.SurroundingsError, match="until they are: MemoryError") as caught:
            one.upsert("x", 1)
        assert isinstance(caught.value.__cause__, MemoryError)
        one.save()
        assert one.upsert("x", 2) == 7
    with Ledger("a", path=tmp_path / "c") as again:
        assert again.get("x") == 7


def test_the_thread_that_saves_goes_on_after_a_fault(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr("tidemill.counters.ledger._RETRY_S", 0.001)
    append, is_saved = Journal.append, threading.Event()

    def noted(self: Journal, message: Message) -> None:
        append(self, message)
        is_saved.set()

    with Ledger("a", path=tmp_path / "c", save_ms=1) as one:
        monkeypatch.setattr(Journal, "append", noted)
        broken = breaks_once(monkeypatch, journal, "encode_rows")
        one.upsert("x", 5)
        assert broken.wait(30)
        assert is_saved.wait(30)
    with Ledger("a", path=tmp_path / "c") as again:
        assert again.get("x") == 5


@pytest.mark.parametrize("failure", [KeyboardInterrupt, MemoryError, tm.DiskFull])
def test_what_somebody_could_not_save_is_left_to_the_thread_that_saves(
    tmp_path: Path, monkeypatch: Patch, failure: type[BaseException]
) -> None:
    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS) as one:
        one.upsert("x", 5)
        breaks_once(monkeypatch, journal, "encode", failure)
        with pytest.raises(failure):
            one.save()
        assert one._due.is_set()
        one.save()
        assert not one._due.is_set()


def test_a_turn_that_was_closed_for_a_peer_nobody_knows_is_still_to_be_saved(
    tmp_path: Path,
) -> None:
    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS) as one:
        one.upsert("x", 5)
        with pytest.raises(tm.InvalidInput, match="nothing was heard"):
            one.outgoing(Replica("b", 1))
        assert one._due.is_set()


def test_a_node_that_must_not_count_does_not_after_a_failed_save_either(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS) as one:
        hello = one.hello()
        one.upsert("x", 5)
        with pytest.raises(tm.DuplicateNode):
            one.receive(hello)
        breaks_once(monkeypatch, journal, "encode", tm.DiskFull)
        with pytest.raises(tm.DiskFull):
            one.save()
        one.save()
        with pytest.raises(tm.DuplicateNode):
            one.upsert("x", 1)


@pytest.mark.parametrize(
    ("owner", "name"), [(journal, "encode"), (threading.Thread, "start")], ids=["save", "thread"]
)
def test_a_ledger_that_cannot_be_opened_lets_go_of_its_folder(
    tmp_path: Path, monkeypatch: Patch, owner: type | ModuleType, name: str
) -> None:
    closed: list[Journal] = []
    close = Journal.close

    def noted(self: Journal) -> None:
        closed.append(self)
        close(self)

    monkeypatch.setattr(Journal, "close", noted)
    breaks_once(monkeypatch, owner, name)
    with pytest.raises(MemoryError):
        Ledger("a", path=tmp_path / "c")
    assert len(closed) == 1
    Ledger("a", path=tmp_path / "c").close()


def test_a_ledger_that_cannot_save_at_its_end_lets_go_of_its_folder(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    one = Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS)
    one.upsert("x", 5)
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise MemoryError("for good")

        patch.setattr("tidemill.counters.table.Table.place", full)
        with pytest.raises(MemoryError):
            one.close()
    assert one._saver is not None
    one._saver.join(30)
    assert not one._saver.is_alive()
    Ledger("a", path=tmp_path / "c").close()


# Closing.


def test_an_interrupted_close_lets_go_of_nothing_unsaved_and_can_be_repeated(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    one = Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS)
    one.upsert("x", 5)
    breaks_once(monkeypatch, journal, "encode", KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        one.close()
    with pytest.raises(tm.Closed):
        one.upsert("x", 1)
    one.close()
    assert one._saver is not None
    assert not one._saver.is_alive()
    with Ledger("a", path=tmp_path / "c") as again:
        assert again.get("x") == 5


@pytest.mark.slow
def test_a_close_that_was_interrupted_at_any_line_can_be_repeated(tmp_path: Path) -> None:
    for at in count():
        one = Ledger("a", path=tmp_path / f"{at}", save_ms=NEVER_MS)
        one.upsert("x", 5)
        where = interrupted(at, one.close)
        one.close()
        with Ledger("a", path=tmp_path / f"{at}") as again:
            assert again.get("x") == 5, where
        if not where:
            assert at > 50
            return


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Mesh, "sync"), (Mesh, "close"), (Link, "close"), (Server, "close"), (Ledger, "close")],
    ids=lambda what: what if isinstance(what, str) else what.__name__,
)
def test_a_node_whose_close_was_interrupted_is_closed_by_the_next(
    tmp_path: Path, monkeypatch: Patch, owner: type, name: str
) -> None:
    with tm.Counters("peer", listen="127.0.0.1:0") as peer:
        # A port that the system gave away itself could be somebody else's by the second start.
        address = f"127.0.0.1:{free_port()}"
        one = tm.Counters("a", path=tmp_path / "c", listen=address, peers=[peer.address])
        one.upsert("x", 5)
        assert one.sync() == {peer.address: "ok"}
        links = one._mesh._all()
        with monkeypatch.context() as patch:
            breaks_once(patch, owner, name, KeyboardInterrupt)
            with pytest.raises(KeyboardInterrupt):
                one.close()
        one.close()
        for thread in (one._keeper, *(link._thread for link in links)):
            thread.join(30)
            assert not thread.is_alive()
        with pytest.raises(tm.Closed):
            one.upsert("x", 1)
        with tm.Counters("a", path=tmp_path / "c", listen=one.address) as again:
            assert again.get("x") == 5


def test_a_node_that_cannot_save_at_its_end_lets_go_of_its_address_and_of_who_waits_for_it(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    address = f"127.0.0.1:{free_port()}"
    one = tm.Counters("a", path=tmp_path / "c", listen=address, save_ms=NEVER_MS)
    one.upsert("x", 5)
    breaks_once(monkeypatch, journal, "encode", tm.DiskFull)
    waiting = threading.Thread(target=one.wait_halted, daemon=True)
    waiting.start()
    with pytest.raises(tm.DiskFull):
        one.close()
    waiting.join(30)
    assert not waiting.is_alive()
    with tm.Counters("b", listen=one.address) as other:
        assert other.address == one.address


# Starting.


@pytest.mark.parametrize("failure", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("at", ["tidemill-link", "tidemill-counters"])
def test_a_node_that_cannot_be_opened_lets_go_of_everything(
    tmp_path: Path, monkeypatch: Patch, at: str, failure: type[BaseException]
) -> None:
    start, ended = threading.Thread.start, list[str]()

    def starting(self: threading.Thread) -> None:
        if self.name.startswith(at):
            raise failure("no thread")
        start(self)

    def noted(self: Journal) -> None:
        ended.append("folder")
        close(self)

    close = Journal.close
    address = f"127.0.0.1:{free_port()}"
    with tm.Counters("peer", listen="127.0.0.1:0") as peer:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", starting)
            patch.setattr(Journal, "close", noted)
            with pytest.raises(failure):
                tm.Counters("a", path=tmp_path / "c", listen=address, peers=[peer.address])
        assert ended == ["folder"]
        with tm.Counters("a", path=tmp_path / "c", listen=address, peers=[peer.address]) as one:
            assert one.sync() == {peer.address: "ok"}


def test_a_peer_whose_thread_could_not_be_started_is_called_later(monkeypatch: Patch) -> None:
    monkeypatch.setattr("tidemill.counters.counters._LOOK_S", 0.001)
    wanted: list[str] = []
    with (
        tm.Counters("b", listen="127.0.0.1:0") as other,
        tm.Counters("a", peers=lambda: wanted) as one,
    ):
        broken = breaks_once(monkeypatch, Link, "start", RuntimeError)
        wanted.append(other.address)
        assert broken.wait(30)
        while one.peers != [other.address]:
            assert one._keeper.is_alive()
            one._closing.wait(0.01)
        assert one.sync() == {other.address: "ok"}


# Closing a turn.


@pytest.mark.parametrize("name", ["_parts", "_expiries", "_message"])
def test_a_turn_that_could_not_be_closed_is_open(monkeypatch: Patch, name: str) -> None:
    """Else peers would know a turn that no disk has, and take the node for a duplicate later."""
    one = node("a")
    one.upsert("x", 5)
    one.update_ttl("x", 10**17)
    breaks_once(monkeypatch, Node, name)
    with pytest.raises(MemoryError):
        one.seal()
    with pytest.raises(tm.Bug, match="a turn is open"):
        one.hello()
    sealed = one.seal()
    assert sealed is not None
    assert (sealed.parts.names, sealed.expiries.names) == (["x"], ["x"])
    assert sealed.versions.tolist() == one.hello().versions.tolist() == [1]


# The columns.


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 8], ids=["together", "one-by-one"])
@pytest.mark.parametrize("call", [Node.all, Node.seal])
def test_an_interrupt_at_any_line_loses_nothing_that_was_counted(
    monkeypatch: Patch, few: int, call: Callable[[Node], object]
) -> None:
    monkeypatch.setattr(Table, "few", few)
    counted = {"shared": 10} | {f"c{number}": number for number in range(20)}
    for at in count():
        one, other = node("a"), node("b")
        one.upsert("gone", 1)
        other.upsert("shared", 7)
        meet(one, other)
        one.delete("gone")
        meet(one, other)
        assert one.collect() == 1  # There are rows to be used again.
        for name, value in counted.items():
            one.upsert(name, value - 7 if name == "shared" else value)
        where = interrupted(at, partial(call, one))
        assert {name: one.get(name) for name in counted} == counted, where
        assert values(one) == counted, where
        one.collect()
        meet(one, other)
        assert values(one) == values(other) == counted, where
        if not where:
            assert at > 100
            return


@pytest.mark.parametrize("column", ["first", "expiry_stamp"])
def test_counters_there_is_no_memory_for_leave_no_trace(monkeypatch: Patch, column: str) -> None:
    one = node("a")
    one.upsert("innocent", 100)
    one.upsert_many([f"c{number}" for number in range(15)], 1)
    shown = one.all()

    def full(self: Table, name: str, value: object) -> None:
        if name == column:
            raise MemoryError
        object.__setattr__(self, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(Table, "__setattr__", full)
        with pytest.raises(MemoryError):
            one.upsert_many([f"new-{number}" for number in range(100)], 1)
    assert one.all() == shown
    assert one.upsert_many(["one-more"], 1).tolist() == [1]
    one.collect()
    assert values(one) == shown[0] | {"one-more": 1}


def test_counters_that_find_no_place_in_the_index_give_their_rows_back(
    monkeypatch: Patch,
) -> None:
    class Full(dict[str, int]):
        def update(self, *rows: Any, **_: Any) -> None:
            for name, row in next(iter(rows)):
                self[name] = row
                raise MemoryError

    one = node("a")
    one.upsert_many(["x", "y"], 1)
    one.delete("y")
    one.seal()
    assert one.collect() == 1
    table = one.state.table
    with monkeypatch.context() as patch:
        patch.setattr(table, "index", Full(table.index))
        with pytest.raises(MemoryError):
            one.upsert_many(["new-1", "new-2"], 1)
        left = dict(table.index)
    assert left == {"x": 0}
    assert one.upsert_many(["new-3", "new-4"], 1).tolist() == [1, 1]
    one.state.has_dead = True  # So that it looks.
    one.collect()
    assert values(one) == {"x": 1, "new-3": 1, "new-4": 1}
    assert table.counters == 3


@pytest.mark.parametrize("failure", [tm.TooLarge, MemoryError])
def test_an_upsert_of_many_that_fails_leaves_what_expired_to_be_revived(
    monkeypatch: Patch, failure: type[Exception]
) -> None:
    one = node("a")
    one.upsert("x", 7)
    one.update_ttl("x", 1)
    if failure is tm.TooLarge:
        monkeypatch.setattr("tidemill.counters.state.COUNTERS_MAX", 1)
    else:
        breaks_once(monkeypatch, Table, "new_parts")
    with pytest.raises(failure):
        one.upsert_many(["x", "y"], 1)
    assert one.all() == ({}, {"x": 7})
    one.update_ttl("x", None)
    assert one.get("x") == 7
