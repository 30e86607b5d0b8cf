"""Read-only replicas of a simulated cluster: they call machines, and agree with them in the end.

They have a random number generator of their own, so that schedules of machines are what they are
without them; and no model: what a reader shows on the way depends on whom it heard last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container
from random import Random

import tidemill as tm
from tests.counters.machine import START_US, US, Clock, Machine
from tidemill.counters import Message, Node, Replica


class Reader:
    """A node that never counts, and answers to its calls that are still on their way."""

    def __init__(self, name: str, random: Random, tally: Counter[str]) -> None:
        self.name = name
        self.random = random
        self.tally = tally
        self.clock = Clock()
        self.lives = 0
        self.begin()

    def begin(self) -> None:
        self.lives += 1
        replica = Replica(self.name, self.lives)
        self.node = Node(replica, now_ns=self.clock.time_ns, is_reader=True)
        self.node.seal()
        self.late: list[Message] = []

    def step(self, machine: Machine) -> None:
        """Call a machine; or take an answer that is late, collect, or start anew."""
        chance = self.random.random()
        if chance < 0.1 and self.late:
            self._take(self.late.pop(self.random.randrange(len(self.late))))
        elif chance < 0.15:
            self.node.collect()
        elif chance < 0.17:
            self.begin()
        else:
            self.call(machine, loss=0.2)

    def call(self, machine: Machine, *, loss: float = 0.0) -> None:
        """Exchange with a machine, as a link does. Raises what the machine does."""
        self.node.seal()
        try:
            request = self.node.delta(machine.node.replica) or self.node.hello()
        except (tm.InvalidInput, tm.NodeRemoved):
            request = self.node.hello()
        self.tally["calls of readers"] += 1
        machine.node.receive(machine.by_wire(request))
        machine.seal()
        answer = machine.node.delta(self.node.replica) or machine.node.hello()
        if self.random.random() >= loss:
            self._take(answer)
        elif self.random.random() < 0.5:
            self.late.append(answer)

    def heal(self) -> None:
        self.clock.now_us = START_US + 10**4 * US
        while self.late and self.random.random() < 0.7:
            self._take(self.late.pop())

    def alone_knows(self, replica: Replica, known: Container[Replica]) -> bool:
        """Whether it holds something of a replica that those who count have not heard of."""
        return replica in self.node.nodes() and replica not in known

    def _take(self, answer: Message) -> None:
        before = self.node.state
        try:
            self.node.receive(answer)
        except tm.NodeRemoved:
            self.tally["messages of removed nodes to readers"] += 1
        if self.node.state is not before:
            self.tally["readers that started again"] += 1
        self.node.seal()
