"""The laws of the merge, for states that came about in any way.

States are made by real nodes that count, delete, let expire and tell each other some of it. Merging
is what `receive` does with everything another one has.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.counters.nodes import StandingClock
from tidemill.counters import Message, Node, Replica
from tidemill.counters.message import EMPTY
from tidemill.counters.table import NEVER

pytestmark = pytest.mark.slow

NAMES = ("x", "y")
Step = tuple[int, str, str, int]

steps = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(("upsert", "delete", "expire", "tell", "collect")),
        st.sampled_from(NAMES),
        st.integers(-9, 9),
    ),
    max_size=12,
)


class Trio:
    """Three nodes, and what each would tell somebody who has nothing."""

    def __init__(self, history: list[Step], *, have_met: bool = False) -> None:
        self.clock = StandingClock()
        self.nodes = [Node(Replica(name, 1), now_ns=self.clock.time_ns) for name in "abc"]
        for one in self.nodes:
            one.seal()
        greetings = [one.hello() for one in self.nodes] if have_met else []
        for one in self.nodes:
            for greeting in greetings:
                if greeting.sender != one.replica:
                    one.receive(greeting)
            one.seal()
        for number, what, name, amount in history:
            self._do(self.nodes[number], what, name, amount)
        for one in self.nodes:
            one.seal()

    def _do(self, one: Node, what: str, name: str, amount: int) -> None:
        self.clock.now_s += amount
        if what == "upsert":
            one.upsert(name, amount)
        elif what == "collect":
            one.collect()
        elif what == "tell":
            one.seal()
            give(one.snapshot(), self.nodes[(self.nodes.index(one) + 1 + amount % 2) % 3])
        elif name in {**one.all()[0], **one.all()[1]}:
            if what == "delete":
                one.delete(name)
            else:
                one.update_ttl(name, int((self.clock.now_s + amount) * 10**6))

    def states(self) -> list[Message]:
        return [one.snapshot() for one in self.nodes]


def give(everything: Message, receiver: Node) -> None:
    """Merge all that another one has, whatever the receiver has already."""
    if everything.sender == receiver.replica:
        return
    everything = everything._replace(is_full=True, forgotten=())
    if receiver.replica in everything.replicas:
        number = everything.replicas.index(receiver.replica)
        receiver.receive(everything._replace(receiver=number))
    else:
        replicas = [*everything.replicas, receiver.replica]
        versions = np.append(everything.versions, 0)
        receiver.receive(
            everything._replace(
                replicas=replicas,
                versions=versions,
                needy=EMPTY,
                dropped=EMPTY,
                known={},
                receiver=len(replicas) - 1,
            )
        )
    receiver.seal()


def bystander(clock: StandingClock, *messages: Message) -> Node:
    """Somebody new, who hears these."""
    one = Node(Replica("z", 9), now_ns=clock.time_ns)
    one.seal()
    for message in messages:
        give(message, one)
    return one


def essence(one: Node) -> object:
    """All that a state says: parts, and when counters expire. Not in which order it was learnt, nor
    which dead parts are not forgotten yet: of those a merge takes none that the other side dropped.
    """
    table, replicas = one.state.table, one.state.knowledge.replicas
    parts = set()
    expiries = set()
    for name, counter in table.index.items():
        for row in table.chain(counter):
            version = table.version.item(row)
            if version:
                owner = replicas[table.owner.item(row)]
                value = table.value.item(row)
                parts.add((name, owner, table.generation.item(row), version, value))
                if table.expiry_us.item(counter) != NEVER:
                    expiry = table.expiry_us.item(counter), table.edition.item(counter)
                    expiries.add((name, *expiry))
    return parts, expiries


@given(steps)
def test_merging_is_commutative(history: list[Step]) -> None:
    trio = Trio(history)
    a, b, _ = trio.states()
    assert essence(bystander(trio.clock, a, b)) == essence(bystander(trio.clock, b, a))


@given(steps)
def test_merging_is_associative(history: list[Step]) -> None:
    trio = Trio(history)
    states = trio.states()
    found = [essence(bystander(trio.clock, *order)) for order in permutations(states)]
    for a, b, c in permutations(states):
        pair = bystander(trio.clock, b, c)
        found.append(essence(bystander(trio.clock, a, replace_sender(pair))))
    assert all(one == found[0] for one in found)


def replace_sender(one: Node) -> Message:
    """A state as if somebody else had it, so that a bystander of the same name takes it."""
    message = one.snapshot()
    return message._replace(replicas=[Replica("y", 9), *message.replicas[1:]])


@given(steps)
def test_merging_is_idempotent(history: list[Step]) -> None:
    trio = Trio(history)
    states = trio.states()
    once = bystander(trio.clock, *states)
    before = essence(once)
    for message in (*states, *reversed(states)):
        give(message, once)
    assert essence(once) == before
    assert once.seal() is None


@given(steps)
def test_the_same_updates_are_the_same_state(history: list[Step]) -> None:
    """Whoever hears of everything, in whatever order, shows the same."""
    trio = Trio(history)
    states = trio.states()
    for one in trio.nodes:
        for message in states:
            give(message, one)
    shown = [one.all() for one in trio.nodes]
    assert shown[0] == shown[1] == shown[2]
    assert bystander(trio.clock, *states).all() == shown[0]


@given(steps, steps)
def test_only_the_owner_advances_its_part(history: list[Step], more: list[Step]) -> None:
    """Nobody has a newer version of a part, in its generation, than its owner."""
    trio = Trio([*history, *more], have_met=True)  # a stranger may have what its owner forgot
    own = {}
    for one in trio.nodes:
        table = one.state.table
        for name, counter in table.index.items():
            for row in table.chain(counter):
                if table.owner.item(row) == 0:
                    own[name, one.replica] = (
                        table.generation.item(row),
                        table.version.item(row),
                        table.value.item(row),
                    )
    for one in trio.nodes:
        table, replicas = one.state.table, one.state.knowledge.replicas
        for name, counter in table.index.items():
            for row in table.chain(counter):
                key = (name, replicas[table.owner.item(row)])
                generation, version = table.generation.item(row), table.version.item(row)
                if key not in own:
                    # Its owner forgot it; so it is dead here, too.
                    assert version == 0
                elif version and generation == own[key][0]:
                    assert version <= own[key][1]
                    if version == own[key][1]:
                        assert table.value.item(row) == own[key][2]
                elif version:
                    # Somebody emptied it, or the owner began anew, since this one heard.
                    assert generation < own[key][0]


@given(steps)
def test_a_deletion_is_not_undone_by_older_state(history: list[Step]) -> None:
    trio = Trio(history)
    a, b, c = trio.nodes
    old = trio.states()
    for message in old:
        give(message, a)
    there = [name for name in NAMES if name in {**a.all()[0], **a.all()[1]}]
    for name in there:
        a.delete(name)
    a.seal()
    for one in (b, c):
        give(a.snapshot(), one)
    # The clocks may say what they like, and the past may come again.
    trio.clock.now_s -= 10**6
    for message in old:
        for one in trio.nodes:
            give(message, one)
    for one in trio.nodes:
        assert one.all() == ({}, {})
