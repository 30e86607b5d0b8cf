"""What is dropped does not come back: by a stranger, by one that was removed, or by the disk."""

from __future__ import annotations

from tests.counters.nodes import CLOCK, StandingClock, greeting, meet, node, reader, tell, values
from tidemill.counters import Message, Node, Replica


def _forgot(*nodes: Node) -> None:
    """Those who are known to each other forget what is dead."""
    for _ in range(2):
        meet(*nodes)
        for one in nodes:
            one.collect()
            one.seal()
    assert [one.state.has_dead for one in nodes] == [False] * len(nodes)


def _restarted(one: Node, disk: list[Message], clock: StandingClock) -> Node:
    again = Node(one.replica, now_ns=clock.time_ns)
    for message in disk:
        again.load(message)
    again.seal()
    return again


def _stranger(a: Node) -> Node:
    """One who has all that a node has, by way of a third that is gone."""
    third, stranger = node("third"), node("stranger")
    meet(a, third)
    meet(third, stranger)
    a.remove_node("third")
    a.seal()
    return stranger


def test_a_stranger_hears_of_a_delete_that_everybody_else_forgot() -> None:
    a, b = node("a"), node("b")
    a.upsert("x", 5)
    stranger = _stranger(a)
    a.delete("x")
    _forgot(a, b)
    assert values(stranger) == {"x": 5}
    meet(b, stranger)
    assert values(stranger) == values(b) == {}


def test_whoever_hears_of_a_forgotten_delete_hands_it_on() -> None:
    a, its_friend = node("a"), node("friend")
    a.upsert("x", 5)
    stranger = _stranger(a)
    meet(stranger, its_friend)
    assert values(its_friend) == {"x": 5}
    a.delete("x")
    _forgot(a)
    tell(stranger, a)
    tell(a, stranger)
    # The friend never meets those who forgot.
    tell(stranger, its_friend)
    assert values(its_friend) == {}


def test_a_part_of_a_removed_node_that_comes_by_a_stranger_stays_deleted() -> None:
    a, gone, stranger = node("a"), node("g"), node("s")
    gone.upsert("x", 5)
    meet(a, gone)
    gone.upsert("x", 1)
    meet(gone, stranger)
    assert values(stranger) == {"x": 6}
    a.delete("x")
    a.remove_node("g")
    a.seal()
    a.collect()
    assert values(a) == {}
    meet(a, stranger)
    # What came is the 5 that were deleted, and 1; nobody can tell them apart.
    assert values(a) == values(stranger) == {}


def test_a_counter_of_a_removed_node_that_nobody_deleted_comes_by_a_stranger() -> None:
    a, gone, stranger = node("a"), node("g"), node("s")
    gone.upsert("x", 5)
    meet(a, gone)
    gone.upsert("y", 1)
    meet(gone, stranger)
    a.remove_node("g")
    a.seal()
    a.collect()
    meet(a, stranger)
    assert values(a) == values(stranger) == {"x": 5, "y": 1}


def test_a_ttl_without_a_counter_does_not_come_back_from_the_disk() -> None:
    clock = StandingClock(1_000)
    one = node("a", clock=clock)
    other = node("b", clock=clock)
    disk: list[Message] = [one.snapshot()]
    other.upsert("x", 1)
    meet(one, other)
    # Its delete and the other's TTL cross each other.
    one.delete("x")
    other.update_ttl("x", 1_100 * 10**6)
    for _ in range(4):
        for sender, receiver in ((one, other), (other, one)):
            if (saved := sender.seal()) is not None and sender is one:
                disk.append(saved)
            receiver.receive(sender.delta(receiver.replica) or sender.hello())
        if (saved := one.seal()) is not None:
            disk.append(saved)
        one.collect()
        other.collect()
        other.seal()
    one.upsert("x", 1)
    saved = one.seal()
    assert saved is not None
    disk.append(saved)
    assert one.expiry_us("x") is None
    clock.now_s = 2_000
    again = _restarted(one, disk, clock)
    assert again.expiry_us("x") is None
    assert values(again) == {"x": 1}


def test_an_owner_counts_above_all_that_it_forgot_though_a_dead_part_came_back() -> None:
    a, b = node("a"), node("b")
    a.upsert("x", 1)
    stranger = _stranger(a)
    stranger.delete("x")  # which begins the first generation, and nobody hears of
    stranger.seal()
    for _ in range(3):
        a.upsert("x", 1)
        meet(a, b)
        a.delete("x")
        meet(a, b)
    a.collect()  # b remembers the third
    a.seal()
    tell(stranger, a)
    tell(a, stranger)
    tell(stranger, a)
    a.upsert("x", 9)
    meet(a, b)
    assert values(a) == values(b) == {"x": 9}


def test_one_who_has_dropped_it_tells_the_next_that_all_hold_it() -> None:
    """In a chain, only the one between them can tell one end what the other holds."""
    a, b, c = (node(name) for name in "abc")
    c.upsert("x", 1)
    for one, other in ((c, b), (b, c), (b, a), (a, b), (b, c), (c, b), (b, a)) * 2:
        tell(one, other)
    b.delete("x")
    for one, other in ((b, a), (a, b), (b, c), (c, b)):
        tell(one, other)
    assert b.collect() == 1
    b.seal()
    tell(b, a)
    assert a.collect() == 1


def test_a_reader_drops_a_ttl_that_was_forgotten() -> None:
    a, b, one = node("a"), node("b"), reader("r")
    a.upsert("x", 1)
    a.update_ttl("x", 9_000 * 10**6)
    meet(a, b)
    a.receive(greeting(one))
    tell(a, one)
    assert one.expiry_us("x") == 9_000 * 10**6
    a.delete("x")
    _forgot(a, b)
    b.upsert("x", 2)
    meet(a, b)
    a.receive(greeting(one))
    tell(a, one)
    assert values(one) == {"x": 2}
    assert one.expiry_us("x") is None


def test_what_was_forgotten_is_on_disk() -> None:
    a, b = node("a"), node("b")
    b.upsert("x", 5)
    meet(a, b)
    a.delete("x")
    a.remove_node("b")
    a.seal()
    a.collect()
    a.upsert("y", 1)
    a.seal()
    again = _restarted(a, [a.snapshot()], CLOCK)
    forgotten = again.state.knowledge.forgotten
    number = again.state.knowledge.find(Replica("b", 1))
    assert forgotten.drops() == a.state.knowledge.forgotten.drops() != ()
    assert number is not None
    assert forgotten.generations[number] == 1


def test_a_node_that_was_never_deleted_from_tells_nobody_everything() -> None:
    a, b = node("a"), node("b")
    a.upsert("x", 5)
    meet(a, b)
    a.delete("x")
    _forgot(a, b)
    a.upsert("y", 1)
    a.seal()
    message = a.delta(b.replica)
    assert message is not None
    assert not message.is_full
    fresh = node("c")
    a.receive(greeting(fresh))
    a.seal()
    message = a.delta(fresh.replica)
    assert message is not None
    assert message.is_full
