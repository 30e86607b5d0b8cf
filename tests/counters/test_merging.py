"""What several nodes do with each other's counters, by hand; `simulator` does it at random."""

from __future__ import annotations

from itertools import permutations

import pytest

import tidemill as tm
from tests.counters.nodes import StandingClock, greeting, meet, node, reader, tell, told, values
from tidemill.counters import Replica
from tidemill.limits import INT64_MAX


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_the_value_is_the_sum_of_the_parts(order: tuple[int, ...]) -> None:
    nodes = [node(name) for name in "abc"]
    for one, delta in zip(nodes, (100, 170, -90), strict=True):
        one.upsert("var1", delta)
    meet(*(nodes[number] for number in order))
    assert [one.get("var1") for one in nodes] == [180] * 3
    assert nodes[0].parts("var1") == {
        Replica("a", 1): 100,
        Replica("b", 1): 170,
        Replica("c", 1): -90,
    }


def test_only_what_a_peer_has_not_acknowledged_is_sent() -> None:
    a, b = node("a"), node("b")
    meet(a, b)
    a.upsert_many([f"c{number}" for number in range(100)], 1)
    first = told(a, b)
    assert first.rows == 100
    # It is lost, and so sent again, with what came since.
    a.upsert("c100")
    assert tell(a, b) == 101
    # Nothing of it is sent again, or back.
    assert tell(b, a) == 0
    assert tell(a, b) == tell(b, a) == 0
    assert a.delta(b.replica) is None
    assert b.delta(a.replica) is None
    a.upsert("c7")
    assert tell(a, b) == 1


def test_many_updates_of_one_counter_are_one_row() -> None:
    a, b = node("a"), node("b")
    meet(a, b)
    for _ in range(100_000):
        a.upsert("x")
    assert tell(a, b) == 1
    assert b.get("x") == 100_000


def test_what_is_relayed_through_a_chain_arrives_once() -> None:
    a, b, c, d = chain = [node(name) for name in "abcd"]
    for _ in range(3):
        for one, other in ((a, b), (b, c), (c, d), (d, c), (c, b), (b, a)):
            tell(one, other)
    for number, one in enumerate(chain):
        one.upsert("x", 10**number)
    assert [tell(a, b), tell(b, c), tell(c, d)] == [1, 2, 3]
    assert [tell(d, c), tell(c, b), tell(b, a)] == [1, 2, 3]
    assert {one.get("x") for one in chain} == {1111}


def test_a_mesh_does_not_send_what_came_another_way() -> None:
    a, b, c = (node(name) for name in "abc")
    meet(a, b, c)
    a.upsert("x", 5)
    assert [tell(a, b), tell(a, c)] == [1, 1]
    assert [tell(b, a), tell(c, a), tell(b, c), tell(c, b)] == [0, 0, 1, 0]


def test_a_delete_reaches_everybody_and_a_stale_peer_does_not_undo_it() -> None:
    a, b, c = (node(name) for name in "abc")
    b.upsert("x", 7)
    meet(a, b, c)
    stale = told(c, a)
    a.delete("x")
    tell(a, b)
    tell(c, b)
    tell(c, a)
    a.receive(stale)
    for one in (a, b):
        with pytest.raises(tm.NoSuchCounter):
            one.get("x")
    tell(b, c)
    assert values(c) == {}
    # What is counted from now on counts.
    assert c.upsert("x", 2) == 2
    meet(a, b, c)
    assert a.get("x") == b.get("x") == 2


def test_upserts_of_a_generation_that_is_over_are_lost() -> None:
    a, b = node("a"), node("b")
    b.upsert("x", 7)
    meet(a, b)
    a.delete("x")
    assert b.upsert("x", 1) == 8
    meet(a, b)
    assert values(a) == values(b) == {}


def test_a_part_that_the_deleter_never_saw_stays() -> None:
    a, b = node("a"), node("b")
    a.upsert("x", 7)
    b.upsert("x", 2)
    a.delete("x")
    meet(a, b)
    assert values(a) == values(b) == {"x": 2}


def test_dead_parts_go_once_everybody_knows_and_do_not_come_back() -> None:
    a, b, c = (node(name) for name in "abc")
    b.upsert("x", 7)
    meet(a, b, c)
    past = [told(one, other) for one in (a, b, c) for other in (a, b, c) if one is not other]
    a.delete("x")
    meet(a, b)
    assert a.collect() == b.collect() == 0  # c has not heard of it
    meet(a, b, c)
    assert [one.collect() for one in (a, b, c)] == [1, 1, 1]
    assert [len(one.state.table) for one in (a, b, c)] == [0, 0, 0]
    for message in past:
        for one in (a, b, c):
            if message.sender != one.replica:
                one.receive(message)
    assert values(a) == values(b) == values(c) == {}
    # Also where one forgot it and another did not.
    b.upsert("x", 1)
    meet(a, b, c)
    assert values(a) == values(b) == values(c) == {"x": 1}


def test_counting_again_reaches_those_who_did_not_forget_yet() -> None:
    a, b = node("a"), node("b")
    b.upsert("x", 7)
    meet(a, b)
    a.delete("x")
    meet(a, b)
    assert b.collect() == 1
    b.upsert("x", 3)
    tell(b, a)
    assert values(a) == {"x": 3}
    a.delete("x")
    meet(a, b)
    assert values(b) == {}


def test_a_node_that_is_away_holds_up_forgetting_until_it_is_removed() -> None:
    a, b, c = (node(name) for name in "abc")
    c.upsert("x", 7)
    meet(a, b, c)
    a.delete("x")
    meet(a, b)
    assert a.collect() == 0
    a.remove_node("c")
    assert a.collect() == 0  # b may still take something from c
    meet(a, b)
    assert a.collect() == 1
    a.seal()
    assert a.nodes()[c.replica].is_removed
    # The removed one is refused, and told so.
    with pytest.raises(tm.NodeRemoved) as refused:
        tell(c, a)
    assert refused.value.replica == c.replica
    with pytest.raises(tm.NodeRemoved):
        a.delta(c.replica)
    assert values(a) == {}
    again = node("c", 2)
    meet(a, b, again)
    assert values(again) == {}
    again.upsert("x", 1)
    meet(a, b, again)
    assert values(a) == {"x": 1}


def test_what_a_removed_node_counted_stays() -> None:
    a, b = node("a"), node("b")
    b.upsert("x", 7)
    meet(a, b)
    a.remove_node("b")
    a.seal()
    assert a.get("x") == 7
    with pytest.raises(tm.InvalidInput, match="no node 'z'"):
        a.remove_node("z")
    with pytest.raises(tm.InvalidInput, match="this node"):
        a.remove_node("a")


def test_a_removed_node_that_hears_of_it_stops_counting() -> None:
    a, b, c = (node(name) for name in "abc")
    meet(a, b, c)
    c.upsert("x", 1)
    a.remove_node("c")
    tell(a, b)
    with pytest.raises(tm.NodeRemoved, match="a@1 removed this node"):
        c.receive(greeting(b))
    with pytest.raises(tm.NodeRemoved):
        c.upsert("x", 1)


def test_a_new_incarnation_keeps_what_the_old_one_counted_and_counts_on() -> None:
    a, b = node("a"), node("b")
    b.upsert("x", 7)
    meet(a, b)
    again = node("b", 2)
    assert again.upsert("x", 1) == 1
    meet(a, again)
    assert a.get("x") == again.get("x") == 8
    assert set(a.parts("x")) == {Replica("b", 1), Replica("b", 2)}
    # Nobody waits for the old life.
    a.delete("x")
    meet(a, again)
    assert a.collect() == 2


def test_two_live_nodes_of_one_name_stop_both() -> None:
    a, one, other = node("a"), node("b", 1), node("b", 2)
    meet(a, one)
    meet(a, other)
    with pytest.raises(tm.DuplicateNode, match="took the place of b@1"):
        one.receive(greeting(a))
    with pytest.raises(tm.DuplicateNode):
        one.upsert("x", 1)


def test_a_node_with_an_old_copy_of_its_state_stops() -> None:
    a, b = node("a"), node("b")
    b.upsert("x", 7)
    meet(a, b)
    old = node("b")
    with pytest.raises(tm.DuplicateNode, match="old copy of its folder"):
        tell(a, old)
    with pytest.raises(tm.DuplicateNode):
        old.upsert("x", 1)


def test_the_last_ttl_wins_whatever_the_clocks_say() -> None:
    late, early = StandingClock(5_000), StandingClock(1_000)
    a, b = node("a", clock=late), node("b", clock=early)
    a.upsert("x", 1)
    a.update_ttl("x", 9_000 * 10**6)
    meet(a, b)
    b.update_ttl("x", 2_000 * 10**6)  # its clock is behind, and it is later all the same
    meet(a, b)
    assert a.expiry_us("x") == b.expiry_us("x") == 2_000 * 10**6
    assert a.all() == ({}, {"x": 1})
    assert b.all() == ({"x": 1}, {})


def test_counters_that_expired_start_again_together() -> None:
    """A window of a rate limit ends: every node counts the new one from nothing."""
    clock = StandingClock(1_000)
    a, b = node("a", clock=clock), node("b", clock=clock)
    a.upsert("x", 5)
    b.upsert("x", 6)
    a.update_ttl("x", 1_010 * 10**6)
    meet(a, b)
    clock.now_s = 1_011
    assert a.upsert("x", 1) == 1
    assert b.upsert("x", 2) == 2
    meet(a, b)
    assert a.get("x") == b.get("x") == 3


def test_collecting_does_not_delete_what_another_revived_in_time() -> None:
    clock = StandingClock(1_000)
    a, b = node("a", clock=clock), node("b", clock=clock)
    a.upsert("x", 5)
    a.update_ttl("x", 1_010 * 10**6)
    meet(a, b)
    clock.now_s = 1_011
    b.update_ttl("x", 2_000 * 10**6)
    meet(a, b)
    assert a.collect() == 0
    assert a.get("x") == b.get("x") == 5


def test_parts_that_add_up_to_too_much_are_an_error_and_heal() -> None:
    a, b = node("a"), node("b")
    a.upsert("x", INT64_MAX)
    b.upsert("x", INT64_MAX)
    meet(a, b)
    for one in (a, b):
        with pytest.raises(tm.CounterOverflow):
            one.get("x")
        with pytest.raises(tm.CounterOverflow):
            one.upsert("x", 1)
        with pytest.raises(tm.CounterOverflow):
            one.upsert_many(["x"], [1])
    assert a.all() == ({"x": 2 * INT64_MAX}, {})
    a.delete("x")
    meet(a, b)
    assert b.upsert("x", 1) == 1


def test_a_reader_shows_everything_and_changes_nothing() -> None:
    a, b, one = node("a"), node("b"), reader("r")
    a.upsert("x", 1)
    b.upsert("x", 2)
    meet(a, b)
    a.receive(greeting(one))
    tell(a, one)
    assert values(one) == {"x": 3}
    for change in (
        lambda: one.upsert("x", 1),
        lambda: one.upsert_many(["x"], 1),
        lambda: one.delete("x"),
        lambda: one.update_ttl("x", 5),
        lambda: one.remove_node("a"),
    ):
        with pytest.raises(tm.ReadOnly):
            change()
    # Nobody waits for it; it hears of what is forgotten all the same.
    a.delete("x")
    a.upsert("y", 4)
    meet(a, b)
    assert a.collect() == 2
    assert one.replica not in a.nodes()
    a.receive(greeting(one))
    tell(a, one)
    assert values(one) == {"y": 4}
    a.forget_reader(one.replica)
    with pytest.raises(tm.InvalidInput, match="start with hello"):
        a.delta(one.replica)


def test_a_reader_takes_back_what_nobody_holds_after_a_node_lost_its_state() -> None:
    old, other, one = node("a", 1), node("b"), reader("r")
    meet(old, other)
    other.upsert("x", 7)
    meet(old, other)
    old.delete("x")
    old.upsert("y", 100)
    one.receive(greeting(old))
    tell(one, old)
    tell(old, one)
    assert values(one) == {"y": 100}
    new = node("a", 2)
    new.upsert("y", 5)
    meet(new, other)
    shown = []
    for _ in range(2):
        for peer in (new, other):
            tell(one, peer)
            tell(peer, one)
            shown.append(values(one))
    assert values(new) == values(other) == values(one) == {"x": 7, "y": 5}
    assert {} not in shown, "it starts again with what it hears, not before"


def test_a_reader_tells_a_node_of_its_earlier_life_and_that_one_that_it_is_over() -> None:
    old, one = node("a", 1), reader("r")
    old.upsert("x", 100)
    tell(one, old)
    tell(old, one)
    new = node("a", 2)
    for _ in range(2):
        tell(one, new)
        tell(new, one)
    assert one.all() == new.all() == ({}, {})
    with pytest.raises(tm.DuplicateNode, match="took the place"):
        old.receive(greeting(one))
    assert new.upsert("x", 1) == 1


def test_a_greeting_is_answered_though_an_answer_was_lost() -> None:
    a, b = node("a"), node("b")
    a.upsert("x", 5)
    b.receive(greeting(a))
    assert told(b, a).rows == 0  # which is lost
    b.receive(greeting(a))
    b.seal()
    answer = b.delta(a.replica)
    assert answer is not None
    a.receive(answer)
    assert tell(a, b) == 1
