"""Forks: named, independent consuming ends."""

from __future__ import annotations

from pathlib import Path

import pytest

import tidemill as tm
from tidemill.files.queue import consuming_end
from tidemill.files.state import state


def keys(end: tm.PriorityQueue | tm.Fork) -> list[int]:
    return list(end.peek(-1).keys.to_pylist())


def test_a_fork_is_isolated_from_its_parent_and_from_others(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path, bucket=tm.Width(2)) as queue:
        queue.push([(key, b"") for key in range(6)])
        one, two = queue.fork("one"), queue.fork("two")
        queue.pop(4)
        one.delete(1, 2)
        two.clear()
        assert keys(queue) == [4, 5]
        assert keys(one) == [0, 3, 4, 5]
        assert keys(two) == []


def test_a_fork_sees_every_later_push(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        fork = queue.fork("late")
        queue.push([(2, b"b")])
        queue.pop()
        queue.push([(1, b"a")])
        assert fork.pop(9).rows() == [(1, b"a"), (2, b"b")]


def test_what_a_read_of_a_fork_pushes_goes_to_everyone(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        fork = queue.fork("f")
        queue.push([(1, b"a")])
        with fork.read(1) as read:
            read.push([(3, b"c")])
        assert keys(queue) == [1, 3]
        assert keys(fork) == [3]


def test_a_fork_of_a_fork_starts_where_its_parent_stands(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"") for key in range(10)])
        parent = queue.fork("parent")
        parent.pop(3)
        parent.delete(8, 9)
        child = parent.fork("child")
        parent.pop(1)
        assert keys(child) == [3, 4, 5, 6, 7]
        assert keys(parent) == [4, 5, 6, 7]
        assert keys(queue) == list(range(10))


def test_forking_twice_under_one_name_changes_nothing(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"") for key in range(5)])
        first = queue.fork("same")
        first.pop(2)
        second = queue.fork("same")
        assert keys(second) == [2, 3, 4]
        second.pop()
        assert keys(first) == [3, 4]
        assert queue.forks() == ["same"]


def test_a_removed_fork_raises_whatever_handle_is_used(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        fork, twin = queue.fork("gone"), queue.fork("gone")
        fork.remove()
        for use in (
            twin.pop,
            twin.peek,
            lambda: twin.read().__enter__(),
            lambda: twin.delete(0, 1),
            twin.clear,
            lambda: twin.fork("child"),
            twin.remove,
            lambda: len(twin),
        ):
            with pytest.raises(tm.ForkRemoved):
                use()
        assert "removed" in repr(twin)
        assert queue.forks() == []


def test_a_name_may_be_used_again_after_removal_and_starts_afresh(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(1, b""), (2, b"")])
        old = queue.fork("again")
        old.pop(2)
        old.remove()
        assert keys(queue.fork("again")) == [1, 2]
        with pytest.raises(tm.ForkRemoved):
            old.pop()


def test_children_outlive_a_removed_parent(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"") for key in range(4)])
        parent = queue.fork("parent")
        parent.pop()
        child = parent.fork("child")
        parent.remove()
        queue.push([(9, b"")])
        assert keys(child) == [1, 2, 3, 9]
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.forks() == ["child"]
        assert keys(queue.fork("child")) == [1, 2, 3, 9]


def test_forks_survive_closing_and_opening_where_they_stood(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.push([(key, b"") for key in range(6)])
        queue.fork("a").pop(2)
        queue.fork("b").delete(1, 3)
        queue.pop(5)
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.forks() == ["a", "b"]
        assert keys(queue.fork("a")) == [2, 3, 4, 5]
        assert keys(queue.fork("b")) == [0, 4, 5]
        assert keys(queue) == [5]


def test_forks_keep_their_items_through_rewrites_of_segments(tmp_path: Path) -> None:
    options = {"segment_bytes": 16 * 1024, "maintain_in_background": False}
    with tm.PriorityQueue(tmp_path, **options) as queue:  # type: ignore[arg-type]
        slow = queue.fork("slow")
        for start in range(200):
            queue.push([(start, bytes(500))])
            if start % 3:
                queue.pop()
        child = slow.fork("child")
        child.pop(100)
        queue.clear()
        for start in range(200, 300):
            queue.push([(start, bytes(500))])
            queue.pop()
        assert keys(slow) == list(range(300))
        assert keys(child) == list(range(100, 300))
    with tm.PriorityQueue(tmp_path) as queue:
        assert keys(queue.fork("slow")) == list(range(300))
        assert keys(queue.fork("child")) == list(range(100, 300))


def test_a_fork_of_an_end_whose_items_were_carried_sees_them(tmp_path: Path) -> None:
    options = {"segment_bytes": 16 * 1024, "maintain_in_background": False}
    with tm.PriorityQueue(tmp_path, **options) as queue:  # type: ignore[arg-type]
        slow = queue.fork("slow")
        # What only `slow` still needs is carried for it alone.
        for start in range(300):
            queue.push([(start, bytes(400))])
            queue.pop()
            slow.pop(1 if start % 2 else 0)
        assert queue.stats().segments > 1
        left = keys(slow)
        child = slow.fork("child")
        assert keys(child) == left
        assert keys(queue.fork("of the queue".replace(" ", "-"))) == []
        child.pop(5)
        assert keys(child) == left[5:]
        assert keys(slow) == left


def test_names_that_differ_by_case_alone_are_refused(tmp_path: Path) -> None:
    with tm.PriorityQueue(tmp_path) as queue:
        queue.fork("Audit")
        with pytest.raises(tm.InvalidName, match="case"):
            queue.fork("audit")
        assert queue.forks() == ["Audit"]


def test_as_many_forks_as_are_allowed_can_be_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consuming_end, "FORKS_MAX", 3)
    monkeypatch.setattr(state, "FORKS_MAX", 3)
    with tm.PriorityQueue(tmp_path, segment_bytes=16 * 1024) as queue:
        for name in ("a", "b", "c"):
            queue.fork(name)
        with pytest.raises(tm.InvalidInput, match="at most 3 forks"):
            queue.fork("d")
        for _ in range(40):
            queue.push([(1, bytes(500))])
        assert queue.stats().segments > 1
    with tm.PriorityQueue(tmp_path) as queue:
        assert queue.forks() == ["a", "b", "c"]
        queue.fork("a").remove()
        queue.fork("d")
