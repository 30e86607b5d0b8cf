"""The ack window: the pointer is the end of the longest acked prefix, whatever the order."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidemill.log.ack_window as module
from tidemill.errors import TooLarge
from tidemill.log.ack_window import AckWindow

ranges = st.lists(
    st.tuples(st.integers(-3, 60), st.integers(-2, 12)).map(lambda one: (one[0], one[0] + one[1])),
    max_size=60,
)


@given(pointer=st.integers(0, 20), acks=ranges)
def test_it_agrees_with_a_set_of_numbers(pointer: int, acks: list[tuple[int, int]]) -> None:
    window, done = AckWindow(pointer), set(range(-5, pointer + 1))
    for first, last in acks:
        before = window.pointer
        moved = window.ack(first, last)
        done |= set(range(first, last + 1))
        end = before
        while end + 1 in done:
            end += 1
        assert window.pointer == end
        assert moved == (end > before)
        behind = sorted(number for number in done if number > end)
        assert [one for low, high in window.runs for one in range(low, high + 1)] == behind
        # Runs that touch are one, so that memory goes with the gaps.
        assert all(high + 1 < low for (_, high), (low, _) in pairwise(window.runs))


@given(st.permutations(list(range(1, 41))))
def test_any_order_of_single_acks_ends_at_the_last(order: list[int]) -> None:
    window = AckWindow(0)
    for seq in order:
        window.ack(seq, seq)
        window.ack(seq, seq)
    assert (window.pointer, window.runs) == (40, [])


def test_numbers_near_the_limit_are_numbers() -> None:
    window = AckWindow(2**62)
    assert not window.ack(2**63 - 2, 2**63 - 2)
    assert window.runs == [(2**63 - 2, 2**63 - 2)]


def test_gaps_are_bounded_and_closing_one_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACK_RUNS_MAX", 3)
    window = AckWindow(0)
    for seq in (2, 4, 6):
        window.ack(seq, seq)
    with pytest.raises(TooLarge, match="row 8 cannot be acked"):
        window.ack(8, 8)
    assert not window.ack(7, 7), "a run that grows needs no room"
    assert window.ack(1, 1)
    assert not window.ack(9, 9)
    assert window.runs == [(4, 4), (6, 7), (9, 9)]
