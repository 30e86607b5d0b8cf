"""What a ring asks of a store, asked of every store: `tidemill.records.store` has it in words."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

import tidemill as tm
from tests.records.conftest import OpenStore
from tidemill.records.store import Record, RecordStore, Write

_CHANGES = 25  # of a counter, by each of the threads or processes
_OTHERS = 4

# What a process does that shares a record with others: it adds to a number, over and over.
_ADD = """
import sys
from tests.records.test_contract import add
from tidemill.records.opening import open_records
add(open_records(sys.argv[1])[0], sys.argv[2], int(sys.argv[3]))
"""


def _got(store: RecordStore, name: str) -> Record:
    found = store.get(name)
    assert found is not None
    return found


def add(store: RecordStore, name: str, times: int) -> None:
    """Add 1 to the number in a record, so many times, against others who do the same."""
    done = 0
    while done < times:
        found = store.get(name)
        assert found is not None
        more = str(int(found.data) + 1).encode()
        done += store.replace(name, more, found.generation) is not None


def test_a_record_that_is_not_there_is_none(store: RecordStore, name: str) -> None:
    assert store.get(name) is None
    assert store.replace(name, b"x", 1) is None
    assert store.delete(name, 1) is False
    assert store.get(name) is None


def test_what_was_made_is_found_with_its_generation(store: RecordStore, name: str) -> None:
    generation = store.create(name, b"one")
    found = _got(store, name)
    assert (found.data, found.generation) == (b"one", generation)


def test_a_record_is_made_once(store: RecordStore, name: str) -> None:
    first = store.create(name, b"one")
    assert first is not None
    assert store.create(name, b"two") is None
    assert _got(store, name).data == b"one"
    assert _got(store, name).generation == first


def test_a_write_needs_the_generation_that_the_record_has(store: RecordStore, name: str) -> None:
    first = store.create(name, b"one")
    assert first is not None
    second = store.replace(name, b"two", first)
    assert second not in (None, first)
    assert store.replace(name, b"late", first) is None
    assert store.delete(name, first) is False
    assert (_got(store, name).data, _got(store, name).generation) == (b"two", second)


def test_writing_the_same_bytes_again_is_a_new_generation(store: RecordStore, name: str) -> None:
    first = store.create(name, b"same")
    assert first is not None
    second = store.replace(name, b"same", first)
    assert second not in (None, first)
    assert store.replace(name, b"same", first) is None


def test_a_record_that_was_deleted_and_made_again_has_new_generations(
    store: RecordStore, name: str
) -> None:
    used = []
    for _ in range(3):
        generation = store.create(name, b"again")
        assert generation is not None
        used.append(generation)
        following = store.replace(name, b"more", generation)
        assert following is not None
        used.append(following)
        assert store.delete(name, following) is True
        assert store.get(name) is None
    assert len(set(used)) == len(used)
    assert store.create(name, b"last") is not None
    assert all(store.replace(name, b"late", generation) is None for generation in used)
    assert _got(store, name).data == b"last"


@pytest.mark.parametrize(
    "data",
    [b"", bytes(range(256)), b"\x00" * 1000, "naïve ☃".encode(), b"'\"\\%s\r\n$5\r\n"],
    ids=["empty", "all bytes", "zeros", "text", "quotes"],
)
def test_bytes_come_back_as_they_were(store: RecordStore, name: str, data: bytes) -> None:
    generation = store.create(name, data)
    assert generation is not None
    assert _got(store, name).data == data
    assert store.replace(name, data + data, generation) is not None
    assert _got(store, name).data == data + data


@pytest.mark.slow
def test_the_largest_record_fits_and_one_byte_more_is_refused(
    store: RecordStore, name: str
) -> None:
    size = min(store.record_bytes_max, 20_000_000)  # which is more than a packet of MySQL
    data = os.urandom(size)
    generation = store.create(name, data)
    assert generation is not None
    assert _got(store, name).data == data
    with pytest.raises(tm.TooLarge, match="takes"):
        store.replace(name, bytes(store.record_bytes_max + 1), generation)
    assert _got(store, name).generation == generation
    assert store.replace(name, data[::-1], generation) is not None
    assert _got(store, name).data == data[::-1]


def test_names_are_told_apart_by_case_and_to_the_last_letter(store: RecordStore, name: str) -> None:
    names = [name, name.upper(), f"{name}-", f"{name}:a", f"{name}.a", (name + "x" * 128)[:128]]
    assert len({store.create(one, one.encode()) for one in names} - {None}) >= 1
    assert [_got(store, one).data for one in names] == [one.encode() for one in names]


@pytest.mark.parametrize("bad", ["", "a b", "a/b", "a\nb", "ä", "a%s", "a" * 129, "{a}"])
def test_names_outside_the_grammar_are_refused(store: RecordStore, bad: str) -> None:
    with pytest.raises(tm.InvalidName):
        store.get(bad)
    with pytest.raises(tm.InvalidName):
        store.create(bad, b"")


def test_the_age_is_by_the_clock_of_the_store(store: RecordStore, name: str, kind: str) -> None:
    before_s = time.monotonic()
    generation = store.create(name, b"one")
    assert generation is not None
    if kind == "etcd":
        assert _got(store, name).age_us is None
        return
    time.sleep(0.05)
    age_us = _got(store, name).age_us
    assert age_us is not None
    assert 45_000 <= age_us <= (time.monotonic() - before_s) * 1e6 + 5_000
    again_s = time.monotonic()
    assert store.replace(name, b"two", generation) is not None
    younger_us = _got(store, name).age_us
    assert younger_us is not None
    assert -5_000 <= younger_us <= (time.monotonic() - again_s) * 1e6 + 5_000


def test_many_are_read_and_written_at_once(store: RecordStore, name: str) -> None:
    names = [f"{name}:{number}" for number in range(250)]
    assert store.get_many([]) == []
    assert store.write_many([]) == []
    made = store.write_many([Write(one, one.encode(), None) for one in names])
    assert None not in made
    found = store.get_many([*names, f"{name}:none"])
    assert found[-1] is None
    assert [one.data for one in found[:-1] if one] == [one.encode() for one in names]
    assert [one.generation for one in found[:-1] if one] == made


def test_of_many_writes_each_is_by_itself(store: RecordStore, name: str) -> None:
    names = [f"{name}:{number}" for number in range(4)]
    there = store.create(names[0], b"there")
    changed = store.create(names[1], b"there")
    assert there is not None
    assert changed is not None
    moved = store.replace(names[1], b"changed", changed)
    assert moved is not None
    written = store.write_many(
        [
            Write(names[0], b"over", there),
            Write(names[1], b"late", changed),
            Write(names[2], b"new", None),
            Write(names[3], b"gone", 7),
        ]
    )
    assert [one is not None for one in written] == [True, False, True, False]
    found = store.get_many(names)
    assert [one.data if one else None for one in found] == [b"over", b"changed", b"new", None]
    assert found[0] is not None
    assert found[0].generation == written[0]


def test_records_are_seen_by_whoever_opens_the_store(open_store: OpenStore, name: str) -> None:
    (one, _), (other, _) = open_store(), open_store()
    generation = one.create(name, b"mine")
    assert generation is not None
    assert _got(other, name).generation == generation
    assert other.replace(name, b"yours", generation) is not None
    assert one.replace(name, b"mine", generation) is None
    assert _got(one, name).data == b"yours"


def test_of_many_threads_that_write_at_once_one_wins_each_time(
    store: RecordStore, name: str
) -> None:
    assert store.create(name, b"0") is not None
    threads = [threading.Thread(target=add, args=(store, name, _CHANGES)) for _ in range(_OTHERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert int(_got(store, name).data) == _CHANGES * _OTHERS


def test_of_many_that_make_a_record_at_once_one_does(store: RecordStore, name: str) -> None:
    made: list[int | None] = []
    barrier = threading.Barrier(8)

    def make() -> None:
        barrier.wait()
        made.append(store.create(name, str(threading.get_ident()).encode()))

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 8
    assert [one for one in made if one is not None] == [_got(store, name).generation]


@pytest.mark.slow
def test_of_many_processes_that_write_at_once_one_wins_each_time(
    store: RecordStore, name: str, url: str, kind: str
) -> None:
    if kind == "memory":
        pytest.skip("memory is one process's own")
    assert store.create(name, b"0") is not None
    run = [sys.executable, "-c", _ADD, url, name, str(_CHANGES)]
    processes = [subprocess.Popen(run) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert int(_got(store, name).data) == 3 * _CHANGES


def test_a_forked_process_uses_connections_of_its_own(
    store: RecordStore, name: str, kind: str
) -> None:
    if kind == "memory":
        pytest.skip("memory is one process's own")
    assert store.create(name, b"0") is not None
    child = os.fork()
    if child == 0:
        status = 1
        try:
            add(store, name, _CHANGES)
            store.close()
            status = 0
        finally:
            os._exit(status)
    add(store, name, _CHANGES)
    assert os.waitpid(child, 0)[1] == 0
    assert int(_got(store, name).data) == 2 * _CHANGES


def test_what_is_closed_stays_closed(open_store: OpenStore, name: str, kind: str) -> None:
    store, _ = open_store()
    generation = store.create(name, b"kept")
    store.close()
    store.close()
    if kind != "memory":
        with pytest.raises(tm.Closed, match="closed"):
            store.get(name)
    assert _got(open_store()[0], name).generation == generation
