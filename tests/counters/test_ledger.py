"""A replica with a disk and threads: what lasts, what is refused, and who waits for whom."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from random import Random

import pytest

import tidemill as tm
from tests.faults.checker import ACKNOWLEDGED, ATTEMPTED, bounds
from tests.faults.crash_states import enumerate_states
from tests.faults.driven_queue import StillClock
from tests.faults.io_errors import FailingFileSystem
from tests.faults.memory_fs import MemoryFileSystem
from tidemill.counters import Ledger, Message, decode, encode
from tidemill.counters.journal import Journal
from tidemill.files.disk.filesystem import FileSystem

NEVER_MS = 10**7  # so that only the test saves
SHARE = 1.0 if os.environ.get("TIDEMILL_SOAK") == "1" else 0.1  # of the crash states


def exchange(one: Ledger, other: Ledger) -> None:
    for _ in range(3):
        request = one.outgoing(other.replica) if other.replica in one.nodes() else None
        answer = other.answer(decode(encode(request or one.hello())))
        one.receive(decode(encode(answer)))


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots after a few rows."""
    monkeypatch.setattr("tidemill.counters.journal.COUNTER_JOURNAL_ROWS_MIN", 20)


def test_a_folder_is_open_once_in_a_process(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "c")
    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS) as one:
        one.upsert("x", 5)
        for path in (tmp_path / "c", str(tmp_path / "link")):
            with pytest.raises(tm.Locked, match="in this process already") as caught:
                Ledger("a", path=path)
            assert caught.value.pid == os.getpid()
        assert one.upsert("x", 10) == 15
    with Ledger("a", path=tmp_path / "link") as again:
        assert again.get("x") == 15


def test_a_folder_that_could_not_be_opened_or_was_abandoned_is_opened_again(tmp_path: Path) -> None:
    Ledger("a", path=tmp_path).close()
    with pytest.raises(tm.InvalidInput, match="of node 'a'"):
        Ledger("b", path=tmp_path)
    one = Ledger("a", path=tmp_path, save_ms=NEVER_MS)
    del one
    gc.collect()
    Ledger("a", path=tmp_path).close()


def test_a_forked_child_hears_that_its_parent_has_the_folder(tmp_path: Path) -> None:
    program = """
import os, sys
import tidemill as tm
from tidemill.counters import Ledger
with Ledger("a", path=sys.argv[1]) as ledger:
    if not (child := os.fork()):
        try:
            Ledger("a", path=sys.argv[1])
        except tm.Locked as error:
            os._exit(error.pid == os.getppid())
        os._exit(2)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "1\n", done.stderr


def test_who_was_overtaken_in_its_folder_counts_no_more(tmp_path: Path) -> None:
    counters = tm.Counters("a", path=tmp_path, save_ms=10)
    counters.upsert("x", 5)
    counters.save()
    with tm.Log(tmp_path) as log, log.publisher():
        counters.upsert("x", 10)
        assert isinstance(counters.wait_halted(60), tm.Fenced)
        with pytest.raises(tm.Fenced, match="since the last save is lost"):
            counters.upsert("x")
        saver = counters._real._saver
        assert saver is not None
        saver.join(60)
        assert not saver.is_alive()
        with pytest.raises(tm.Fenced):
            counters.close()
    counters.close()
    with Ledger("a", path=tmp_path) as again:
        assert again.get("x") == 5


def test_a_restart_keeps_everything_and_the_incarnation(tmp_path: Path) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    with Ledger("a", path=tmp_path / "c") as one, Ledger("b") as other:
        one.upsert("x", 5)
        one.upsert_many(["y", "z"], [1, 2])
        one.delete("z")
        one.update_ttl("y", later)
        other.upsert("x", 7)
        exchange(one, other)
        replica, shown = one.replica, one.all()
    with Ledger("a", path=tmp_path / "c") as one:
        assert one.replica == replica
        assert one.all() == shown == ({"x": 12, "y": 1}, {})
        assert one.expiry("y") == later
        assert one.upsert("x", 1) == 13
        assert len(one.parts("x")) == 2


@pytest.mark.slow
def test_an_upsert_is_durable_within_save_ms(tmp_path: Path) -> None:
    """The process is killed, with nothing closed and nobody asked to save."""
    program = (
        "import sys\n"
        "from tidemill.counters import Ledger\n"
        "ledger = Ledger('a', path=sys.argv[1], save_ms=100)\n"
        "ledger.upsert('x', 41)\n"
        "print(ledger.upsert('x', 1), ledger.replica.incarnation, flush=True)\n"
        "sys.stdin.read()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "c")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    value, incarnation = child.stdout.readline().split()
    journal = tmp_path / "c"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and _saved(journal) < int(value):
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    with Ledger("a", path=journal) as again:
        assert again.get("x") == 42
        assert again.replica.incarnation == int(incarnation)


def _saved(path: Path) -> int:
    """What a reader beside the process finds on its disk."""
    with tm.Log(path, read_only=True) as log:
        rows = log.read(rows_max=10_000).rows()
    return max((row["value"] for row in rows if row["name"] == "x"), default=0)


def test_a_lost_folder_is_a_new_incarnation_and_the_old_part_stays(tmp_path: Path) -> None:
    with Ledger("b") as other:
        with Ledger("a", path=tmp_path / "one") as one:
            one.upsert("x", 5)
            exchange(one, other)
        with Ledger("a", path=tmp_path / "two") as again:
            assert again.replica != one.replica
            again.upsert("x", 1)
            exchange(again, other)
            assert other.get("x") == again.get("x") == 6


def test_what_is_sent_was_saved_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[int] = []
    append = Journal.append

    def noted(self: Journal, message: Message) -> None:
        append(self, message)
        saved.append(int(message.versions[0]))

    monkeypatch.setattr(Journal, "append", noted)
    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS) as one, Ledger("b") as other:
        exchange(one, other)
        for number in range(5):
            one.upsert("x", number)
            message = one.outgoing(other.replica)
            assert message is not None
            assert message.versions[0] == max(saved)
            answered = one.answer(other.hello())
            assert answered.versions[0] <= max(saved)


def test_a_message_that_cannot_be_saved_is_not_sent_and_nothing_counts_until_it_is() -> None:
    fs = FailingFileSystem(MemoryFileSystem())
    one = _ledger(fs)
    other = Ledger("b")
    exchange(one, other)
    one.upsert("x", 5)
    fs.fail_next("pwrite")
    with pytest.raises(tm.SurroundingsError):
        one.outgoing(other.replica)
    with pytest.raises(tm.SurroundingsError):
        one.upsert("x", 1)
    assert other.all() == ({}, {})


def _ledger(fs: FileSystem) -> Ledger:
    return Ledger(
        "a",
        path="/counters",
        file_system=fs,
        clock=StillClock(),
        save_ms=NEVER_MS,
        segment_bytes=16 * 1024,
    )


@pytest.mark.slow
def test_a_crash_at_any_point_leaves_what_was_saved(
    short: None, tally: Callable[[str, int], None]
) -> None:
    """Every state that a crash may leave of the disk opens as the same replica, with all that was
    saved, and nothing half; also where a snapshot was about to replace the rest.
    """
    fs = MemoryFileSystem()
    one = _ledger(fs)
    fs.mark(ACKNOWLEDGED, 1)
    states: list[dict[str, int]] = [{}, {}]
    for number in range(2, 10):
        one.upsert_many([f"c{number % 3}", f"d{number}"], number)
        if number % 3 == 0:
            one.delete("c0")
        states.append(one.all()[0])
        fs.mark(ATTEMPTED, number, promise=False)
        one.save()
        fs.mark(ACKNOWLEDGED, number)
    one.close()
    judged = Counter[int]()
    draw = Random("counters")
    for state in enumerate_states(fs.trace, budget=150):
        if draw.random() >= SHARE:
            continue
        acknowledged, attempted = bounds(state.marks)
        again = _ledger(state.file_system())
        assert again.all()[0] in states[acknowledged : max(acknowledged, attempted) + 1], (
            state.describe()
        )
        assert (again.replica == one.replica) or not acknowledged
        assert again.upsert("after", 1) == 1
        again.close()
        judged[acknowledged] += 1
    assert len(judged) > 6
    tally("crash states of counters", judged.total())


def test_a_snapshot_that_does_not_fit_stops_nothing(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All is on disk, only not in less room; that is tried again after as many rows."""
    append, tries = Journal._append, list[int]()

    def full(self: Journal, message: Message) -> int:
        if message.rows > 1:
            tries.append(message.rows)
            raise tm.DiskFull("no room for a snapshot")
        return append(self, message)

    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS) as one, Ledger("b") as other:
        with monkeypatch.context() as patch:
            patch.setattr(Journal, "_append", full)
            for number in range(60):
                one.upsert(f"c{number}")
                one.save()
                exchange(one, other)
        assert other.all() == one.all()
        assert 1 <= len(tries) < 10
        assert "longer than it need be" in caplog.text
    with Ledger("a", path=tmp_path / "c") as one:
        assert one.all() == other._node.all()


@pytest.mark.slow
def test_the_folder_stays_small(tmp_path: Path, short: None) -> None:
    with Ledger("a", path=tmp_path / "c", save_ms=NEVER_MS, segment_bytes=16 * 1024) as one:
        for number in range(300):
            one.upsert("x", number)
            one.save()
        total = one.get("x")
    size = sum(file.stat().st_size for file in (tmp_path / "c").rglob("*") if file.is_file())
    assert size < 200 * 1024
    with Ledger("a", path=tmp_path / "c") as one:
        assert one.get("x") == total == sum(range(300))


@pytest.mark.slow
def test_a_folder_belongs_to_one_node_and_one_process(tmp_path: Path) -> None:
    path = tmp_path / "c"
    Ledger("a", path=path).close()
    with pytest.raises(tm.InvalidInput, match="holds the counters of node 'a'"):
        Ledger("b", path=path)
    with Ledger("a", path=path):
        program = f"from tidemill.counters import Ledger; Ledger('a', path={str(path)!r})"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert "Locked" in done.stderr


@pytest.mark.parametrize(
    "options",
    [
        {"node": "a b"},
        {"save_ms": 0},
        {"save_ms": True},
        {"save_ms": 2**70},
        {"path": "a\0b"},
        {"path": "\ud800"},
        {"path": 5},
        {"read_only": True, "path": "c"},
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(tm.InvalidInput):
        Ledger(**{"node": "a", **options})  # type: ignore[arg-type]


def test_a_time_without_a_zone_is_refused() -> None:
    with Ledger("a") as one:
        one.upsert("x")
        for when in (datetime(2030, 1, 1), 5, "soon"):  # noqa: DTZ001
            with pytest.raises(tm.InvalidInput, match="time zone"):
                one.update_ttl("x", when)  # type: ignore[arg-type]


def test_a_time_beyond_the_years_of_utc_is_refused() -> None:
    west, east = timezone(timedelta(hours=-1)), timezone(timedelta(hours=1))
    with Ledger("a") as one:
        one.upsert("x")
        for when in (datetime.max.replace(tzinfo=west), datetime.min.replace(tzinfo=east)):
            with pytest.raises(tm.InvalidInput, match="1 to 9999"):
                one.update_ttl("x", when)
        assert one.expiry("x") is None
        one.update_ttl("x", datetime.max.replace(tzinfo=UTC))
        assert one.expiry("x") == datetime.max.replace(tzinfo=UTC)


def test_a_closed_ledger_raises(tmp_path: Path) -> None:
    one = Ledger("a", path=tmp_path / "c")
    one.upsert("x", 1)
    one.close()
    one.close()
    for call in (
        lambda: one.upsert("x", 1),
        lambda: one.upsert_many(["x"]),
        lambda: one.get("x"),
        lambda: one.delete("x"),
        one.all,
        one.hello,
        one.collect,
    ):
        with pytest.raises(tm.Closed):
            call()


def test_a_ledger_closes_while_it_is_about_to_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What saves behind the close must not make the thread that saves wait for more."""
    real, saving, may_go_on = Ledger.save, threading.Event(), threading.Event()

    def save(ledger: Ledger) -> None:
        saving.set()
        assert may_go_on.wait(30)
        real(ledger)

    monkeypatch.setattr(Ledger, "save", save)
    one = Ledger("a", path=tmp_path / "c", save_ms=1)
    one.upsert("x", 1)
    assert saving.wait(30)
    closing = threading.Thread(target=one.close, daemon=True)
    closing.start()
    assert one._ending.wait(30)
    may_go_on.set()
    closing.join(30)
    assert not closing.is_alive()


def test_a_forked_child_counts_nothing(tmp_path: Path) -> None:
    with Ledger("a", path=tmp_path / "c") as one:
        one.upsert("x", 1)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                one.upsert("x", 1)
            except tm.Closed:
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert one.upsert("x", 1) == 2


def test_threads_count_together_while_peers_exchange(tmp_path: Path) -> None:
    with Ledger("a", path=tmp_path / "c", save_ms=1) as one, Ledger("b") as other:

        def count() -> None:
            for number in range(2_000):
                one.upsert(f"c{number % 7}")
                if number % 100 == 0:
                    one.upsert_many(["c0", "c1"], 1)

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            exchange(one, other)
        for thread in threads:
            thread.join()
        exchange(one, other)
        assert sum(one.all()[0].values()) == 4 * (2_000 + 40)
        assert other.all() == one.all()
