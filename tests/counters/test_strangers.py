"""Whoever meets whom first: what was deleted and forgotten stays so, and all agree, and rest.

`a` deleted something of `gone`, and forgot that. `b` knew of it and may remember. A stranger has
what was deleted, and perhaps more, of which nobody else has heard.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.counters.nodes import greeting, meet, node, reader, tell, values
from tidemill.counters import Ledger, Node, Replica


def _trio(*, more: int = 0) -> tuple[Node, Node, Node]:
    """(a, who forgot; b, who remembers; a stranger, to whom `gone` told as much and `more`)."""
    a, b, gone, stranger = (node(name) for name in ("a", "b", "gone", "stranger"))
    gone.upsert("x", 5)
    meet(a, b, gone)
    if more:
        gone.upsert("x", more)
    meet(gone, stranger)
    a.delete("x")
    a.remove_node("gone")
    meet(a, b)
    a.collect()
    a.seal()
    assert not a.state.has_dead
    assert b.state.has_dead
    return a, b, stranger


def test_what_is_full_tells_of_the_delete_that_it_does_not_bring() -> None:
    a, b, stranger = _trio(more=1)
    a.receive(greeting(stranger))
    tell(a, stranger)
    # b knows better, and takes the last turn of the one that is gone, which it hands on.
    for one, other in ((stranger, b), (b, stranger), (stranger, b), (b, a)):
        tell(one, other)
    meet(a, b, stranger)
    assert values(a) == values(b) == values(stranger) == {}


def _with_ttls() -> tuple[Node, Node, Node]:
    """(a, who took a TTL back and forgot that; b, who remembers; a stranger that had set one)."""
    a, b, stranger = node("a"), node("b"), node("stranger")
    stranger.upsert("x", 7)
    stranger.update_ttl("x", 1_500 * 10**6)
    a.upsert("x", 1)
    meet(a, b)
    a.update_ttl("x", 9_000 * 10**6)
    a.update_ttl("x", None)
    a.delete("x")
    meet(a, b)
    a.collect()
    a.seal()
    return a, b, stranger


def test_a_ttl_of_a_stranger_that_may_be_old_holds_everywhere() -> None:
    a, b, stranger = _with_ttls()
    for one, other in ((stranger, a), (a, stranger), (stranger, a)):
        tell(one, other)
    meet(a, b, stranger)
    assert {one.expiry_us("x") for one in (a, b, stranger)} == {1_500 * 10**6}


def test_what_is_full_tells_of_the_ttl_that_it_does_not_bring() -> None:
    a, b, stranger = _with_ttls()
    a.receive(greeting(stranger))
    tell(a, stranger)
    for one, other in ((stranger, b), (b, stranger), (stranger, b), (b, a)):
        tell(one, other)
    meet(a, b, stranger)
    assert {one.expiry_us("x") for one in (a, b, stranger)} == {1_500 * 10**6}


def test_an_older_tombstone_does_not_let_a_deleted_count_in() -> None:
    gone, a, third, first, second = (node(name) for name in ("gone", "a", "third", "s", "t"))
    gone.upsert("x", 1)
    meet(gone, third)
    meet(third, first)
    first.delete("x")  # which begins the first generation
    first.seal()
    meet(gone, a)
    for _ in range(2):
        a.delete("x")
        meet(gone, a)
        gone.upsert("x", 100)
        meet(gone, a)
    gone.upsert("x", 7)
    meet(gone, second)
    a.delete("x")  # which begins the third
    a.remove_node("gone")
    a.remove_node("third")
    a.seal()
    for _ in range(2):
        a.collect()
        a.seal()
    for stranger in (first, second):
        tell(stranger, a)
        tell(a, stranger)
        tell(stranger, a)
    meet(a, first, second)
    assert values(a) == values(first) == values(second) == {}


def test_one_who_was_told_everything_tells_it_to_those_who_have_not_heard() -> None:
    a, _, stranger = _trio()
    fresh = node("fresh")
    meet(a, fresh)
    meet(fresh, stranger)  # which never meets one that knew
    assert values(fresh) == values(stranger) == {}


def test_one_who_was_told_everything_hears_who_has_still_to_be_told() -> None:
    a, _, stranger = _trio()
    a.receive(greeting(stranger))  # which it knows now, and tells nothing
    fresh = node("fresh")
    a.receive(greeting(fresh))
    tell(a, fresh)
    meet(fresh, stranger)
    assert values(fresh) == values(stranger) == {}


def test_one_who_was_told_everything_doubts_what_its_teller_would() -> None:
    a, _, stranger = _trio(more=1)
    fresh = node("fresh")
    meet(a, fresh)
    meet(fresh, stranger)
    assert values(fresh) == values(stranger) == {}


def test_one_who_was_told_everything_knows_that_after_a_restart() -> None:
    a, _, stranger = _trio(more=1)
    fresh = node("fresh")
    disk = [fresh.snapshot()]
    a.receive(greeting(fresh))
    a.seal()
    message = a.delta(fresh.replica)
    assert message is not None
    fresh.receive(message)
    saved = fresh.seal()
    assert saved is not None
    again = Node(fresh.replica, now_ns=lambda: 0)
    for message in (*disk, saved):
        again.load(message)
    meet(again, stranger)
    assert values(again) == values(stranger) == {}


def test_what_is_full_is_sent_until_it_arrived_and_not_again() -> None:
    a, follower = Ledger("a"), Ledger("r", read_only=True)
    a.upsert("x", 5)
    follower.receive(a.answer(follower.hello()))
    a.answer(follower.hello())
    a.delete("x")
    a.save()
    a.collect()
    a.answer(follower.hello())  # which is lost
    answer = a.answer(follower.hello())
    assert answer is not None
    assert answer.is_full
    follower.receive(answer)
    assert follower.all()[0] == {}
    answer = a.answer(follower.hello())
    assert not answer.is_full


def test_a_reader_keeps_a_ttl_that_is_mentioned_without_a_counter() -> None:
    a, b, c, one = node("a"), node("b"), node("c"), reader("r")
    b.upsert("x", 1)
    b.upsert("z", 1)
    meet(a, b, c)
    b.update_ttl("x", 9_000 * 10**6)
    a.delete("x")
    for sender, receiver in ((a, c), (c, a), (a, b), (b, a)):  # c hears of the delete alone
        tell(sender, receiver)
    a.receive(greeting(one))
    tell(a, one)
    a.receive(greeting(one))
    assert a.collect() == 1
    a.seal()
    message = a.delta(one.replica)
    assert message is not None
    assert message.is_full
    assert message.expiries.names == ["x"]
    c.upsert("x", 3)
    one.receive(message)
    one.seal()
    meet(a, b, c)
    for sender in (a, b, a, b):
        sender.receive(greeting(one))
        tell(sender, one)
    assert {shown.expiry_us("x") for shown in (a, b, c, one)} == {9_000 * 10**6}


@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("seed", range(25))
def test_in_whatever_order_they_meet_they_agree_and_rest(seed: int, more: int) -> None:
    random = Random(seed)
    a, b, stranger = _trio(more=more)
    friend, fresh = node("friend"), node("fresh")
    meet(stranger, friend)
    nodes = [a, b, stranger, friend, fresh]
    for _ in range(random.randint(1, 14)):
        at, to = random.sample(range(len(nodes)), 2)
        if random.random() < 0.2:
            nodes[at].collect()
            nodes[at].seal()
        if random.random() < 0.1:
            nodes[at] = _restarted(nodes[at])
        tell(nodes[at], nodes[to])
    meet(*nodes, rounds=4)
    assert [values(one) for one in nodes] == [{}] * len(nodes)
    for _ in range(3):
        for one in nodes:
            one.collect()
        meet(*nodes)
    assert [one.state.table.index for one in nodes] == [{}] * len(nodes)
    for one in nodes:
        for other in nodes:
            if one is not other:
                message = one.delta(other.replica)
                assert message is None or not message.is_full


def _restarted(one: Node) -> Node:
    again = Node(one.replica, now_ns=lambda: 10**12)
    again.load(one.snapshot())
    return again


def test_a_count_of_a_removed_node_is_lost_only_where_others_of_it_were_forgotten() -> None:
    a, gone, stranger = node("a"), node("gone"), node("stranger")
    gone.upsert("x", 5)
    gone.upsert("y", 2)
    meet(a, gone)
    gone.upsert("y", 1)
    gone.upsert("z", 1)
    meet(gone, stranger)
    a.delete("x")
    a.remove_node("gone")
    a.seal()
    a.collect()
    a.seal()
    meet(a, stranger)
    # y was here, and is newer; z never was, and may be a deleted one.
    assert values(a) == values(stranger) == {"y": 3}
    assert a.parts("y") == {Replica("gone", 1): 3}
