"""One publisher at a time: the newest epoch wins, and an older one changes nothing."""

from __future__ import annotations

import threading

import pytest

from tests.log.contract.implementations import Bench
from tests.log.contract.writing import append, frames_of, read_all
from tidemill.errors import Fenced
from tidemill.log.contract import Ends, LogStore, Mark


def test_a_newer_writer_fences_the_older(store: LogStore) -> None:
    old = store.claim()
    append(old, [b"a"])
    new = store.claim()
    assert new.epoch > old.epoch
    with pytest.raises(Fenced):
        append(old, [b"x"], [Mark("loader", 1, 2, 2)])
    assert append(new, [b"b"]).first == 2
    with pytest.raises(Fenced):
        append(old, [b"y"])
    assert read_all(store) == [b"a", b"b"]
    assert new.mark("loader") is None


def test_a_fenced_writer_stores_no_marks_without_rows_either(store: LogStore) -> None:
    old = store.claim()
    append(old, [b"a"], [Mark("loader", 1, 1, 1)])
    new = store.claim()
    with pytest.raises(Fenced):
        append(old, [], [Mark("loader", 2, 2, 1)])
    assert new.mark("loader") == Mark("loader", 1, 1, 1)


def test_a_writer_of_another_user_fences_as_well(bench: Bench, store: LogStore) -> None:
    old = store.claim()
    append(old, [b"a"])
    new = bench.open().claim()
    append(new, [b"b"])
    with pytest.raises(Fenced):
        append(old, [b"x"])
    assert read_all(store) == [b"a", b"b"]


def test_numbers_that_the_older_writer_reserved_are_given_again(store: LogStore) -> None:
    old = store.claim()
    append(old, [b"a"])
    reserved = old.reserve(10)
    new = store.claim()
    assert append(new, [b"b"]).first == 2
    with pytest.raises(Fenced):
        old.append(0, reserved, frames_of([b"x"] * 10))
    assert store.ends() == Ends(1, 3)
    assert read_all(store) == [b"a", b"b"]


def test_epochs_grow_across_users(bench: Bench) -> None:
    epochs = []
    for _ in range(5):
        store = bench.open()
        epochs.append(store.claim().epoch)
        store.close()
    assert epochs == sorted(set(epochs))


def test_publishers_that_race_leave_dense_numbers_and_lose_nothing(bench: Bench) -> None:
    confirmed: list[list[bytes]] = [[] for _ in range(4)]
    fenced = [0] * 4

    def publish(who: int) -> None:
        store = bench.open()
        for turn in range(8):
            writer = store.claim()
            for number in range(5):
                row = b"%d-%d-%d" % (who, turn, number)
                try:
                    append(writer, [row, row + b"'"])
                except Fenced:
                    fenced[who] += 1
                    break
                confirmed[who].append(row)

    threads = [threading.Thread(target=publish, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    rows = read_all(bench.open())
    assert rows[1::2] == [row + b"'" for row in rows[::2]]
    assert len(rows) == len(set(rows))
    for mine in confirmed:
        assert [row for row in rows[::2] if row in set(mine)] == mine
    assert {row for mine in confirmed for row in mine} == set(rows[::2])
