"""Removing a ring on a store that loses answers."""

from __future__ import annotations

import pytest

import tidemill as tm
from tidemill.records.memory import MemoryStore
from tidemill.records.ring import Ring


class LosingRemovals(MemoryStore):
    """A store in which a deletion of a ring's own record is not answered: it is done, or not, or
    later, in the order of `lost`.
    """

    def __init__(self, lost: list[str]) -> None:
        super().__init__()
        self._lost = lost
        self._late: list[int] = []

    def delete(self, name: str, generation: int) -> bool:
        if not name.endswith(":ring") or not self._lost:
            while self._late:
                super().delete(name, self._late.pop())
            return super().delete(name, generation)
        match self._lost.pop(0):
            case "answer":
                super().delete(name, generation)
            case "late":
                self._late.append(generation)
        raise tm.OutcomeUnknown("the answer was lost")


@pytest.mark.parametrize("lost", [["answer"], ["request"], ["request", "answer"], ["late"]])
def test_a_lost_answer_to_a_removal_leaves_no_record(lost: list[str]) -> None:
    store = LosingRemovals(lost)
    ring = Ring.on(store, "alerts", capacity=100, slots_per_record=3)
    ring.enqueue_many([b"a"] * 100)
    ring.remove()
    assert not lost
    assert store._records == {}


def test_a_removal_that_is_never_answered_ends_with_patience() -> None:
    ring = Ring.on(LosingRemovals(["request"] * 100), "alerts", capacity=9, lock_wait_s=0.1)
    with pytest.raises(tm.OutcomeUnknown):
        ring.remove()
    assert ring.info().length == 0
