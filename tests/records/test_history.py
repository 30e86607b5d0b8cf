"""The judge of histories finds what is wrong, and nothing else."""

from __future__ import annotations

import pytest

from tests.records.history import Called, Entries, History, Result, Wrong, check, linearizable


def put(began: int, ended: int | None, result: int | Result, *values: str) -> Called:
    return Called("p", "enqueue", began, values=values, ended=ended, result=result)


def take(began: int, ended: int, *result: tuple[int, str], count: int = 1) -> Called:
    return Called("t", "dequeue", began, count=count, ended=ended, result=result)


def get(began: int, ended: int, offset: int, *result: tuple[int, str]) -> Called:
    return Called("g", "get", began, offset=offset, ended=ended, result=result)


RIGHT = {
    "one after the other": [put(1, 2, 0, "a"), take(3, 4, (0, "a")), take(5, 6)],
    "at the same time": [put(1, 9, 1, "b"), put(2, 8, 0, "a"), take(3, 7, (0, "a"))],
    "in doubt, and done": [put(1, None, Result.PENDING, "a"), take(3, 4, (0, "a"))],
    "in doubt, and not done": [put(1, 2, Result.UNKNOWN, "a"), put(3, 4, 0, "b")],
    "full": [put(1, 2, 0, "a", "b"), put(3, 4, Result.FULL, "c"), take(5, 6, (0, "a"))],
    "taken before the answer came": [put(1, 9, 0, "a"), take(2, 3, (0, "a"))],
    "a reading beside a take": [
        put(1, 2, 0, "a"),
        take(3, 8, (0, "a")),
        get(4, 5, 0),
        get(6, 7, 1),
    ],
}

WRONG = {
    "taken twice": [put(1, 2, 0, "a"), take(3, 4, (0, "a")), take(5, 6, (0, "a"))],
    "one offset for two": [put(1, 2, 0, "a"), put(3, 4, 0, "b")],
    "invented": [put(1, 2, 0, "a"), take(3, 4, (0, "z"))],
    "of a call that failed": [put(1, 2, Result.NOTHING, "a"), take(3, 4, (0, "a"))],
    "reordered": [put(1, 2, 0, "a"), put(3, 4, 1, "b"), take(5, 6, (1, "b")), take(7, 8, (0, "a"))],
    "later, and yet before": [put(1, 2, 1, "b"), put(3, 4, 0, "a")],
    "taken before it was put in": [take(1, 2, (0, "a")), put(3, 4, 0, "a")],
    "said to be empty": [put(1, 2, 0, "a"), take(3, 4), take(5, 6, (0, "a"))],
    "said to be full": [put(1, 2, 0, "a"), put(3, 4, Result.FULL, "b")],
}


@pytest.mark.parametrize("name", RIGHT)
def test_what_a_queue_may_do_is_right(name: str) -> None:
    history = History(2, calls=RIGHT[name])
    check(history)
    assert linearizable(history)


@pytest.mark.parametrize("name", WRONG)
def test_what_no_queue_does_is_wrong_for_both_judges(name: str) -> None:
    history = History(2, calls=WRONG[name])
    with pytest.raises(Wrong):
        check(history)
    assert not linearizable(history)


@pytest.mark.parametrize(
    ("left", "message"),
    [
        ((), "lost"),
        (((0, "a"), (1, "b")), "were taken"),
        (((1, "z"),), "was put in"),
        (((1, "b"), (2, "c")), "never put in"),
    ],
)
def test_what_is_left_must_fit(left: Entries, message: str) -> None:
    history = History(2, calls=[put(1, 2, 0, "a", "b"), take(3, 4, (0, "a"))])
    check(history, ((1, "b"),))
    with pytest.raises(Wrong, match=message):
        check(history, left)
