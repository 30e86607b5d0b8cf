"""Numbers of appends under way: shown in order, given again after a failure, never twice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.errors import Bug
from tidemill.log.contract import Reservation, Withdrawn
from tidemill.log.numbering import Numbering


@given(st.data())
def test_what_is_shown_is_dense_and_in_order(data: st.DataObject) -> None:
    numbering, shown = Numbering(1), 0
    under_way: list[Reservation] = []
    withdrawn: list[Reservation] = []
    for _ in range(data.draw(st.integers(0, 40))):
        step = data.draw(st.sampled_from(["reserve", "durable", "withdraw", "told"]))
        if step == "reserve":
            after = data.draw(st.sampled_from([None, numbering.next_seq - 1]))
            with pytest.raises(Withdrawn):
                numbering.reserve(1, numbering.next_seq + data.draw(st.integers(0, 5)))
            under_way.append(numbering.reserve(data.draw(st.integers(0, 3)), after))
        elif step == "durable" and under_way:
            one = data.draw(st.sampled_from(under_way))
            numbering.check(one)
            for ended in numbering.durable(one):
                assert ended.first == shown + 1
                shown = ended.last
                under_way.remove(ended)
        elif step == "withdraw" and under_way:
            one = under_way[data.draw(st.integers(0, len(under_way) - 1))]
            index = under_way.index(one)
            higher = numbering.withdraw(one)
            assert higher == under_way[index + 1 :]
            assert numbering.next_seq == one.first
            withdrawn += higher
            under_way = under_way[:index]
        elif step == "told" and withdrawn:
            one = withdrawn.pop()
            with pytest.raises(Withdrawn):
                numbering.check(one)
    assert numbering.is_idle == (not under_way)


def test_what_is_not_under_way_cannot_become_durable() -> None:
    numbering = Numbering(1)
    one = numbering.reserve(2)
    numbering.durable(one)
    with pytest.raises(Bug):
        numbering.durable(one)
