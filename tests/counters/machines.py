"""Machines, the messages between them, and the peace in which they agree.

Each machine has a real node and a model of it; every message carries the real bytes and a copy of
the sender's model. Whatever arrives, the node must show what its model shows. Healed, everybody
shows the same, the sums are exact, what is dead is forgotten, and messages from the past bring
nothing back.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random
from typing import NamedTuple, NoReturn

import tidemill as tm
from tests.counters.machine import NAMES, START_US, US, Machine
from tests.counters.model import Model
from tests.counters.readers import Reader
from tidemill.counters import Message, Replica
from tidemill.counters.table import Table

# Of 100 clusters about 70 have two nodes, and 7 have four to seven, which cost five times as much.
_SIZES = (2,) * 42 + (3,) * 14 + (4, 5, 6, 7)


class Flying(NamedTuple):
    """A message on its way."""

    sender: int
    receiver: int
    message: Message
    state: Model | None  # what the sender had; a greeting brings nothing


class Violation(AssertionError):
    """The cluster did what it must not."""


class Machines:
    """Those of one schedule, and what is on its way between them."""

    def __init__(self, seed: int, tally: Counter[str]) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.tally = tally
        self.readers: list[Reader] = []
        self.machines: list[Machine] = []
        self.flying: list[Flying] = []
        self.past: list[Flying] = []  # some that were delivered long ago
        self.cut: set[tuple[int, int]] = set()
        self.lives = 0
        self.ended: set[Replica] = set()  # lives that were removed, or whose disk was lost
        self.news = 0  # messages that brought something
        self.is_simple = True  # nothing was deleted, expired, lost or removed
        self.has_strangers = True  # somebody may have forgotten what another has not heard of
        self.is_healing = False
        # Few rows go another way than many, which must not go untested: there are never many here.
        self.few = 0 if self.random.random() < 0.25 else Table.few
        size = self.random.choice(_SIZES)
        self.topology = self.random.choice(("mesh", "chain", "star"))
        for _ in range(size):
            self._add()
        if self.random.random() < 0.9:
            self._greet()
            self.has_strangers = size > 2 and self.topology != "mesh"

    def _any(self) -> Machine:
        while True:
            machine = self.machines[self._number()]
            if not machine.is_gone:
                return machine

    def _number(self) -> int:
        # What `randrange` does, in a third of the time.
        return int(self.random.random() * len(self.machines))

    def _add(self) -> None:
        number = len(self.machines)
        machine = Machine(f"n{number}", self._incarnation(), self.random, self.few)
        self.machines.append(machine)
        if self.topology == "mesh":
            peers = set(range(number))
        else:
            peers = {0 if self.topology == "star" else number - 1} if number else set()
        for peer in peers:
            machine.peers.add(peer)
            self.machines[peer].peers.add(number)

    def _greet(self) -> None:
        """They have met before: the first messages of the schedule bring something."""
        greetings = [machine.node.hello() for machine in self.machines]
        for machine in self.machines:
            for peer in sorted(machine.peers):
                machine.node.receive(greetings[peer])
            machine.seal()

    def _incarnation(self) -> int:
        self.has_strangers = True
        # Drawn, not counted up: nothing may depend on later lives having greater numbers.
        self.lives += 1
        return int(1 + self.random.random() * 10**6) * 100 + self.lives % 100

    def _begin(self, machine: Machine) -> None:
        self.ended.add(machine.node.replica)
        machine.begin(self._incarnation())

    def _come_back(self, machine: Machine) -> None:
        self._begin(machine)
        self.tally["removed nodes that came back"] += 1

    def _collect(self, machine: Machine) -> None:
        self._compare(machine)
        edition = machine.node.state.edition
        dropped = machine.node.collect()
        machine.model.delete_expired(machine.clock.now_us, machine.node.state.edition)
        machine.agree_on_expiries(above=edition)
        self.tally["dead parts forgotten"] += dropped

    def _made(self, sender: int, receiver: int) -> Flying | None:
        one, other = self.machines[sender], self.machines[receiver]
        one.seal()
        try:
            message = one.node.delta(other.node.replica)
        except tm.InvalidInput:
            return Flying(sender, receiver, one.node.hello(), None)
        except tm.NodeRemoved:
            if self.is_healing and not other.is_gone:
                self._come_back(other)
                return Flying(sender, receiver, one.node.hello(), None)
            return None
        if message is None:
            return None
        return Flying(sender, receiver, one.by_wire(message), one.model.copy())

    def _arrive(self, flying: Flying) -> None:
        machine, message = self.machines[flying.receiver], flying.message
        if machine.is_gone:
            return
        try:
            machine.node.receive(message)
        except tm.NodeRemoved as removed:
            self.tally["messages of removed nodes"] += 1
            self._hear(removed, flying)
            return
        is_ours = message.receiver >= 0 and (
            message.replicas[message.receiver] == machine.node.replica
        )
        if flying.state is not None and is_ours and machine.model.merge(flying.state):
            self.news += 1
        self.tally["messages"] += 1
        if self.random.random() < 0.15:
            self.past.append(flying)
        self._compare(machine)

    def _hear(self, removed: tm.NodeRemoved, flying: Flying) -> None:
        """Whoever was removed is told so: by the message, or by the answer to its own."""
        machine, sender = self.machines[flying.receiver], self.machines[flying.sender]
        if removed.replica == machine.node.replica:
            self._come_back(machine)
        is_told = not sender.is_gone and (flying.receiver, flying.sender) not in self.cut
        if removed.replica == sender.node.replica and is_told:
            self._come_back(sender)

    def _heal(self) -> None:
        """Everything works again, and everybody hears of everything."""
        self.is_healing = True
        self.cut.clear()
        for machine in self.machines:
            machine.clock.now_us = START_US + 10**4 * US
        while self.flying:
            self._arrive(self.flying.pop(self.random.randrange(len(self.flying))))
        row = [n for n, machine in enumerate(self.machines) if not machine.is_gone]
        machines = [self.machines[n] for n in row]
        if not self.is_simple and self.random.random() < 0.5:
            # Each deletes what has expired, before it hears of the others.
            for machine in machines:
                self._collect(machine)
                self._compare(machine)
        self._sweep(row)
        if self.ended:
            # The last to hear may have decided something that the others have to hear of.
            self._sweep(row)
        self._check_same(machines, "they differ")
        if self.is_simple:
            self._check_sums(machines)
            return
        self._remove_gone(machines[0])
        self._forget(row)
        before = self.lives, self.news
        for flying in self.past:
            self._arrive(flying)
        if before != (self.lives, self.news):
            # It came back to one who had lost it, with all others who had it.
            self._sweep(row)
            self._sweep(row)
            self.tally["messages of the past that were news"] += 1
        if self.random.random() < 0.1:
            self._exchange(row)
        self._check_same(machines, "the past changed them")
        self._check_readers(row)

    def _let_read(self, reader: Reader, machine: Machine, *, is_healed: bool = False) -> None:
        try:
            if is_healed:
                reader.call(machine)
            else:
                reader.step(machine)
        except tm.NodeRemoved as removed:
            if removed.replica != machine.node.replica:
                raise
            self._come_back(machine)

    def _check_readers(self, row: list[int]) -> None:
        """Each shows what the machines show, once it has heard of all, and they of what it knew."""
        machines = [self.machines[n] for n in row]
        known = machines[0].node.nodes()
        for reader in self.readers:
            reader.heal()
            if any(
                one.is_gone and reader.alone_knows(one.node.replica, known) for one in self.machines
            ):
                # Nobody can be told that it is gone for good.
                reader.begin()
        self._remove_gone(machines[0])
        for _ in range(3):
            for reader in self.readers:
                for machine in machines:
                    self._let_read(reader, machine, is_healed=True)
            self._sweep(row)
        shown = machines[0].node.all()
        for reader in self.readers:
            if reader.node.all() != shown:
                self._fail(f"{reader.name} shows {reader.node.all()}, not {shown}")

    def _sweep(self, row: list[int]) -> None:
        """Along the row of machines and back, so that all is told to all."""
        pairs = list(pairwise(row))
        lives = -1
        while lives != self.lives:
            # Again, if somebody heard only now of having been removed: it has to be told all.
            lives = self.lives
            for one, other in pairs:
                self._tell(one, other)
            for one, other in reversed(pairs):
                self._tell(other, one)

    def _tell(self, one: int, other: int) -> None:
        flying = self._made(one, other)
        if flying is None:
            return
        self._arrive(flying)
        if flying.state is None:
            # They had not met.
            for ends in ((other, one), (one, other)):
                back = self._made(*ends)
                if back is not None:
                    self._arrive(back)

    def _exchange(self, row: list[int]) -> None:
        """Along all links, both ways, until nobody has anything to say."""
        for _ in range(4 * len(self.machines) + 4):
            is_quiet = True
            for one in row:
                for other in sorted(self.machines[one].peers.intersection(row)):
                    flying = self._made(one, other)
                    if flying is not None:
                        is_quiet = False
                        self._arrive(flying)
            if is_quiet:
                return
        self._fail("they never stop talking")

    def _remove_gone(self, machine: Machine) -> None:
        """Who was told of it may have lost that, with its disk."""
        gone = {other.name for other in self.machines if other.is_gone}
        for replica, node in machine.node.nodes().items():
            if replica.node in gone and not node.is_removed:
                machine.node.remove_node(replica.node)

    def _check_same(self, machines: list[Machine], what: str) -> None:
        shown = [machine.shown() for machine in machines]
        if any(one != shown[0] for one in shown):
            self._fail(f"{what}: {shown}")

    def _check_sums(self, machines: list[Machine]) -> None:
        """Nothing was deleted or lost, so that all that was counted is there."""
        total = dict.fromkeys(NAMES, 0)
        for machine in machines:
            for name, count in machine.counted.items():
                total[name] += count
        live, _ = machines[0].shown()
        if {name: live.get(name, 0) for name in NAMES} != total:
            self._fail(f"counted {total}, there is {live}")
        self.tally["schedules with an exact sum"] += 1

    def _forget(self, row: list[int]) -> None:
        """What is dead goes once all have told all of it, and that they heard of it."""
        for sweeps in range(5):
            kept = []
            for number in row:
                machine = self.machines[number]
                self._collect(machine)
                self._compare(machine)
                kept.append(machine.remembered())
            if not any(kept):
                return
            if sweeps < 4:
                self._sweep(row)
        self._fail(f"they still know {kept} dead parts and counters")

    def _compare(self, machine: Machine) -> None:
        """The long way now and then; else by the columns, which takes a fraction of the time."""
        expected = machine.model.all(machine.clock.now_us)
        found = machine.node.all() if self.random.random() < 0.02 else machine.shown()
        if found == expected:
            return
        if self.has_strangers:
            # Whoever forgot a TTL decides anew, when one comes by a stranger.
            machine.agree_on_expiries()
            self.tally["TTLs that were decided anew"] += 1
            expected = machine.model.all(machine.clock.now_us)
        if found != expected and self.ended:
            # Whoever forgot that a part is dead decides so again, when it comes by a stranger.
            machine.agree_on_parts(self.ended)
            self.tally["parts that a stranger brought back"] += 1
            expected = machine.model.all(machine.clock.now_us)
        if found != expected:
            self._fail(f"{machine.name} shows {found}, not {expected}")

    def _fail(self, what: str) -> NoReturn:
        raise Violation(f"seed {self.seed}: {what}")
