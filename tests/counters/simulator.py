"""A cluster of replicas whose network, disks and clocks are a random number generator.

One schedule is one seed. Each machine has a real node and a model of it; every message carries the
real bytes and a copy of the sender's model. After every step the node must show what its model
shows. At the end all is healed: everybody shows the same, the sums are exact, what is dead is
forgotten, and messages from the past change nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import tidemill as tm
from tests.counters.model import Model
from tidemill.counters import Message, Node, Replica, decode, encode

NAMES = ("x", "y")
US = 10**6
START_US = 1_000 * US


class Flying(NamedTuple):
    """A message on its way."""

    sender: int
    receiver: int
    message: Message
    state: Model | None  # what the sender had; a greeting brings nothing


@dataclass
class Machine:
    """What outlives a process: the disk, the clock, and its place in the cluster."""

    name: str
    node: Node
    model: Model
    now_us: int = START_US
    disk: list[Message] = field(default_factory=list)
    saved: Model | None = None
    peers: set[int] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)  # by this replica, and not lost
    unsaved: Counter[str] = field(default_factory=Counter)


class Violation(AssertionError):
    """The cluster did what it must not."""


class Cluster:
    """One schedule."""

    def __init__(self, seed: int, tally: Counter[str]) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.tally = tally
        self.machines: list[Machine] = []
        self.flying: list[Flying] = []
        self.past: list[Flying] = []  # some that were delivered long ago
        self.cut: set[tuple[int, int]] = set()
        self.lives = 0
        self.is_simple = True  # nothing was deleted, expired, lost or removed
        size = self.random.choice(_SIZES)
        self.topology = self.random.choice(("mesh", "chain", "star"))
        for _ in range(size):
            self._add()

    def run(self, steps: int | None = None) -> None:
        """Steps at random, then peace."""
        random = self.random
        for machine in self.machines:
            if random.random() < 0.6:
                self.upsert(machine)
        for _ in range(random.randint(3, 12) if steps is None else steps):
            step = random.choices(_STEPS, _WEIGHTS)[0]
            getattr(self, step)()
        self._heal()

    # Counting.

    def upsert(self, machine: Machine | None = None) -> None:
        machine = self._any() if machine is None else machine
        name, delta = self.random.choice(NAMES), self.random.randint(-5, 20)
        many = self.random.random() < 0.1
        node, model = machine.node, machine.model
        was = node.state.edition
        if many:
            found = int(node.upsert_many([name, name], [delta, 1])[1])
            delta += 1
        else:
            found = node.upsert(name, delta)
        expected = model.upsert(name, delta, machine.now_us, node.state.edition)
        machine.unsaved[name] += delta
        if was != node.state.edition:
            self.tally["counters that started again"] += 1
        self._expect(found == expected, f"{machine.name}: {name} is {found}, not {expected}")

    def delete(self) -> None:
        machine, name = self._any(), self.random.choice(NAMES)
        try:
            machine.node.delete(name)
        except tm.NoSuchCounter:
            self._expect(not machine.model.is_there(name), f"{machine.name} misses {name}")
            return
        self.is_simple = False
        self.tally["deletes"] += 1
        self._expect(machine.model.is_there(name), f"{machine.name} deleted what is not there")
        machine.model.empty(name, machine.node.state.edition)

    def expire(self) -> None:
        machine, name = self._any(), self.random.choice(NAMES)
        offset_s = self.random.choice((-5, 1, 5, 60, None))
        time_us = None if offset_s is None else machine.now_us + offset_s * US
        try:
            machine.node.update_ttl(name, time_us)
        except tm.NoSuchCounter:
            return
        self.is_simple = False
        self.tally["TTLs"] += 1
        machine.model.expire(name, time_us, machine.node.state.edition)

    def collect(self) -> None:
        machine = self._any()
        self._collect(machine)
        self._compare(machine)

    def jump(self) -> None:
        """A clock goes forward, or back, a little or by hours."""
        machine = self._any()
        machine.now_us += self.random.choice((-3600, -2, 1, 2, 6, 61, 3600)) * US
        self.tally["clock jumps"] += 1

    # The network.

    def send(self) -> None:
        sender = self.random.randrange(len(self.machines))
        peers = sorted(self.machines[sender].peers)
        if peers:
            flying = self._made(sender, self.random.choice(peers))
            if flying is not None:
                self.flying.append(flying)

    def deliver(self) -> None:
        """One of those on their way, in no order; it may stay on its way, and come again."""
        if not self.flying:
            return
        at = self.random.randrange(len(self.flying))
        if at:
            self.tally["messages out of order"] += 1
        flying = self.flying[at]
        if self.random.random() < 0.2:
            self.tally["messages that came twice"] += 1
        else:
            del self.flying[at]
        if (flying.sender, flying.receiver) in self.cut:
            self.tally["messages cut off"] += 1
        else:
            self._arrive(flying)

    def lose(self) -> None:
        if self.flying:
            self.flying.pop(self.random.randrange(len(self.flying)))
            self.tally["messages lost"] += 1

    def partition(self) -> None:
        if self.cut and self.random.random() < 0.6:
            self.cut.clear()
            return
        inside = {n for n in range(len(self.machines)) if self.random.random() < 0.5}
        one_way = self.random.random() < 0.3
        self.cut = {
            (one, other)
            for one in range(len(self.machines))
            for other in range(len(self.machines))
            if (one in inside) != (other in inside) and not (one_way and one in inside)
        }
        self.tally["partitions"] += 1

    # The machines.

    def save(self) -> None:
        self._seal(self._any())

    def restart(self) -> None:
        """A process is killed, perhaps in the middle of saving; its disk is there."""
        machine = self._any()
        if self.random.random() < 0.3:
            machine.node.seal()  # and the disk never heard of it
            self.tally["kills before a save"] += 1
        self._take_up(machine)
        self.tally["restarts with state"] += 1

    def lose_disk(self) -> None:
        self._begin(self._any())
        self.is_simple = False
        self.tally["restarts without state"] += 1

    def rewrite_disk(self) -> None:
        machine = self._any()
        self._seal(machine)
        machine.disk = [machine.node.snapshot()]
        self.tally["snapshots"] += 1

    def add(self) -> None:
        if len(self.machines) < 7:
            self._add()
            self.tally["nodes added"] += 1

    def remove(self) -> None:
        """Somebody is told that a node is gone for good; it is, or it comes back empty."""
        if len(self.machines) < 3:
            return
        one, other = self.random.sample(range(len(self.machines)), 2)
        try:
            self.machines[one].node.remove_node(self.machines[other].name)
        except tm.InvalidInput:
            return
        self.is_simple = False
        self.tally["nodes removed"] += 1
        self._begin(self.machines[other])

    # Within.

    def _any(self) -> Machine:
        return self.random.choice(self.machines)

    def _add(self) -> None:
        number = len(self.machines)
        replica = Replica(f"n{number}", 1)
        machine = Machine(f"n{number}", _NOWHERE, Model(replica))
        self.machines.append(machine)
        self._begin(machine)
        if self.topology == "mesh":
            peers = set(range(number))
        else:
            peers = {0 if self.topology == "star" else number - 1} if number else set()
        for peer in peers:
            machine.peers.add(peer)
            self.machines[peer].peers.add(number)

    def _begin(self, machine: Machine) -> None:
        """A node with nothing: a new incarnation."""
        self.lives += 1
        # Drawn, not counted up: nothing may depend on later lives having greater numbers.
        replica = Replica(machine.name, self.random.randrange(1, 10**6) * 100 + self.lives % 100)
        machine.node = Node(replica, now_ns=lambda: machine.now_us * 1_000)
        machine.model = Model(replica)
        machine.disk = []
        machine.counted, machine.unsaved = Counter(), Counter()
        self._seal(machine)

    def _take_up(self, machine: Machine) -> None:
        node = Node(machine.node.replica, now_ns=lambda: machine.now_us * 1_000)
        for message in machine.disk:
            node.load(message)
        node.seal()
        machine.node = node
        assert machine.saved is not None
        machine.model = machine.saved.copy()
        machine.unsaved = Counter()
        self._compare(machine)

    def _seal(self, machine: Machine) -> None:
        sealed = machine.node.seal()
        if sealed is not None:
            if self.random.random() < _BY_WIRE:
                sealed = decode(encode(sealed))
            machine.disk.append(sealed)
            machine.saved = machine.model.copy()
            machine.counted.update(machine.unsaved)
            machine.unsaved = Counter()

    def _collect(self, machine: Machine) -> int:
        dropped = machine.node.collect()
        machine.model.delete_expired(machine.now_us, machine.node.state.edition)
        self.tally["dead parts forgotten"] += dropped
        return dropped

    def _made(self, sender: int, receiver: int) -> Flying | None:
        one, other = self.machines[sender], self.machines[receiver]
        self._seal(one)
        try:
            message = one.node.delta(other.node.replica)
        except tm.InvalidInput:
            return Flying(sender, receiver, one.node.hello(), None)
        except tm.NodeRemoved:
            return None
        if message is None:
            return None
        if self.random.random() < _BY_WIRE:
            message = decode(encode(message))
        return Flying(sender, receiver, message, one.model.copy())

    def _arrive(self, flying: Flying) -> None:
        machine = self.machines[flying.receiver]
        try:
            machine.node.receive(flying.message)
        except tm.NodeRemoved as removed:
            self.tally["messages of removed nodes"] += 1
            if removed.replica == machine.node.replica:
                self._begin(machine)
            return
        is_ours = flying.message.receiver >= 0 and (
            flying.message.replicas[flying.message.receiver] == machine.node.replica
        )
        if flying.state is not None and is_ours:
            machine.model.merge(flying.state)
        self.tally["messages"] += 1
        if self.random.random() < 0.1:
            self.past.append(flying)
        self._compare(machine)

    def _heal(self) -> None:
        """Everything works again, and everybody hears of everything."""
        self.cut.clear()
        for machine in self.machines:
            machine.now_us = START_US + 10**4 * US
        while self.flying:
            self._arrive(self.flying.pop(self.random.randrange(len(self.flying))))
        self._sweep()
        shown = [_shown(machine) for machine in self.machines]
        self._expect(all(one == shown[0] for one in shown), f"they differ: {shown}")
        if self.is_simple:
            self._check_sums(shown[0][0])
            return
        for machine in self.machines:
            self._collect(machine)
        for _ in range(2):
            self._sweep()
        for machine in self.machines:
            self._collect(machine)
            self._compare(machine)
        self._check_forgotten()
        for flying in self.past:
            self._arrive(flying)
        if self.random.random() < 0.1:
            self._exchange()
        values = [_shown(machine) for machine in self.machines]
        self._expect(all(one == values[0] for one in values), f"the past changed them: {values}")

    def _sweep(self) -> None:
        """Along the row of machines and back, so that all is told to all."""
        last = len(self.machines) - 1
        for one, other in [(n, n + 1) for n in range(last)] + [
            (n, n - 1) for n in range(last, 0, -1)
        ]:
            flying = self._made(one, other)
            if flying is not None:
                self._arrive(flying)
            if flying is not None and flying.state is None:
                # They had not met.
                for ends in ((other, one), (one, other)):
                    back = self._made(*ends)
                    if back is not None:
                        self._arrive(back)

    def _exchange(self) -> None:
        """Along all links, both ways, until nobody has anything to say."""
        for _ in range(4 * len(self.machines) + 4):
            is_quiet = True
            for one, machine in enumerate(self.machines):
                for other in sorted(machine.peers):
                    flying = self._made(one, other)
                    if flying is not None:
                        is_quiet = False
                        self._arrive(flying)
            if is_quiet:
                return
        raise Violation(f"seed {self.seed}: they never stop talking")

    def _check_sums(self, shown: dict[str, int]) -> None:
        """Nothing was deleted or lost, so that all that was counted is there."""
        total: Counter[str] = Counter()
        for machine in self.machines:
            total.update(machine.counted)
        self._expect(
            {name: shown.get(name, 0) for name in NAMES} == {name: total[name] for name in NAMES},
            f"counted {dict(total)}, there is {shown}",
        )
        self.tally["schedules with an exact sum"] += 1

    def _check_forgotten(self) -> None:
        for machine in self.machines:
            table = machine.node.state.table
            used = table.counter[: table.parts] >= 0
            dead = int((used & (table.version[: table.parts] == 0)).sum())
            self._expect(dead == 0, f"{machine.name} still knows {dead} dead parts")
            live = len(machine.node.all()[0])
            self._expect(len(table) == live, f"{machine.name} keeps {len(table)} for {live}")

    def _compare(self, machine: Machine) -> None:
        """The long way now and then; else by the columns, which takes a fraction of the time."""
        expected = machine.model.all(machine.now_us)
        if self.random.random() < 0.05:
            found = machine.node.all()
        else:
            found = _shown(machine)
        self._expect(found == expected, f"{machine.name} shows {found}, not {expected}")

    def _expect(self, holds: bool, what: str) -> None:
        if not holds:
            raise Violation(f"seed {self.seed}: {what}")


def _shown(machine: Machine) -> tuple[dict[str, int], dict[str, int]]:
    machine.node.fold()
    table = machine.node.state.table
    sums: dict[int, int] = {}
    there: set[int] = set()
    used = slice(0, table.parts)
    columns = (table.counter[used], table.version[used], table.value[used])
    for counter, version, value in zip(*(column.tolist() for column in columns), strict=True):
        sums[counter] = sums.get(counter, 0) + value
        if version:
            there.add(counter)
    live: dict[str, int] = {}
    expired: dict[str, int] = {}
    for counter in there:
        is_past = table.expiry_us.item(counter) <= machine.now_us
        (expired if is_past else live)[table.names[counter]] = sums[counter]
    return live, expired


_NOWHERE = Node(Replica("nobody", 1), now_ns=lambda: 0)
_CHANCES = {
    "upsert": 26,
    "send": 25,
    "deliver": 25,
    "delete": 6,
    "expire": 6,
    "collect": 6,
    "jump": 6,
    "lose": 3,
    "partition": 3,
    "save": 2,
    "restart": 4,
    "lose_disk": 2,
    "rewrite_disk": 1,
    "add": 1,
    "remove": 1,
}
_SIZES = (2,) * 14 + (3,) * 5 + (4, 5, 6, 7)
_BY_WIRE = 0.005  # of messages; the properties of the wire have tests of their own
_STEPS = list(_CHANCES)
_WEIGHTS = list(_CHANCES.values())
