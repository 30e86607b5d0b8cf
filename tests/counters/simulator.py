"""A cluster of replicas whose network, disks and clocks are a random number generator.

One schedule is one seed: some steps at random, after each of which the nodes must show what their
models show, and then peace: see `machines`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from random import Random

import tidemill as tm
from tests.counters.machine import NAMES, US, Machine
from tests.counters.machines import Machines
from tests.counters.readers import Reader


class Cluster(Machines):
    """One schedule."""

    def run(self, steps: int | None = None, *, readers: int = 0) -> None:
        """Steps at random, then peace."""
        random = self.random
        drawn = Random(self.seed)
        self.readers = [Reader(f"r{number}", drawn, self.tally) for number in range(readers)]
        for machine in self.machines:
            if random.random() < 0.6:
                self.upsert(machine)
        count = random.randint(3, 12) if steps is None else steps
        for step in random.choices(_STEPS, cum_weights=_WEIGHTS, k=count):
            step(self)
            if self.readers and drawn.random() < 0.35:
                there = [machine for machine in self.machines if not machine.is_gone]
                self._let_read(drawn.choice(self.readers), drawn.choice(there))
        self._heal()

    # Counting.

    def upsert(self, machine: Machine | None = None) -> None:
        machine = self._any() if machine is None else machine
        name, delta = self.random.choice(NAMES), self.random.randint(-5, 20)
        many = self.random.random() < 0.05
        self._compare(machine)
        node, model = machine.node, machine.model
        was = node.state.edition
        if many:
            found = int(node.upsert_many([name, name], [delta, 1])[1])
            delta += 1
        else:
            found = node.upsert(name, delta)
        expected = model.upsert(name, delta, machine.clock.now_us, node.state.edition)
        machine.unsaved[name] = machine.unsaved.get(name, 0) + delta
        if was != node.state.edition:
            self.tally["counters that started again"] += 1
        if found != expected:
            self._fail(f"{machine.name}: {name} is {found}, not {expected}")

    def delete(self) -> None:
        machine, name = self._any(), self.random.choice(NAMES)
        self._compare(machine)
        is_there = machine.model.is_there(name)
        try:
            machine.node.delete(name)
        except tm.NoSuchCounter:
            if is_there:
                self._fail(f"{machine.name} misses {name}")
            return
        self.is_simple = False
        self.tally["deletes"] += 1
        if not is_there:
            self._fail(f"{machine.name} deleted what is not there")
        machine.model.empty(name, machine.node.state.edition)

    def expire(self) -> None:
        machine, name = self._any(), self.random.choice(NAMES)
        offset_s = self.random.choice((-5, 1, 5, 60, None))
        time_us = None if offset_s is None else machine.clock.now_us + offset_s * US
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
        self._any().clock.now_us += self.random.choice((-3600, -2, 1, 2, 6, 61, 3600)) * US
        self.tally["clock jumps"] += 1

    # The network.

    def send(self) -> None:
        sender = self._number()
        peers = sorted(self.machines[sender].peers)
        if peers and not self.machines[sender].is_gone:
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
        self._any().seal()

    def restart(self) -> None:
        """A process is killed, perhaps in the middle of saving; its disk is there."""
        machine = self._any()
        if self.random.random() < 0.3:
            machine.node.seal()  # and the disk never heard of it
            self.tally["kills before a save"] += 1
        machine.take_up()
        self._compare(machine)
        self.tally["restarts with state"] += 1

    def lose_disk(self) -> None:
        self._begin(self._any())
        self.is_simple = False
        self.tally["restarts without state"] += 1

    def rewrite_disk(self) -> None:
        machine = self._any()
        machine.seal()
        machine.disk = [machine.node.snapshot()]
        self.tally["snapshots"] += 1

    def add(self) -> None:
        if len(self.machines) < 7:
            self._add()
            self.tally["nodes added"] += 1

    def remove(self) -> None:
        """Somebody is told that a node is gone for good. It is; or it comes back empty, at once or
        when it hears of that, and counts until then. What it sent before is on its way.
        """
        there = [machine for machine in self.machines if not machine.is_gone]
        if len(there) < 2:
            return
        one, other = self.random.sample(there, 2)
        try:
            one.node.remove_node(other.name)
        except tm.InvalidInput:
            return
        self.is_simple = False
        self.has_strangers = True
        self.ended.add(other.node.replica)
        self.tally["nodes removed"] += 1
        fate = self.random.random()
        if fate < 0.4:
            self._come_back(other)
        elif fate < 0.6 and len(there) > 2:
            other.is_gone = True
            self.tally["nodes gone for good"] += 1
        else:
            self.tally["nodes removed that did not hear of it"] += 1


_CHANCES: dict[Callable[[Cluster], None], int] = {
    Cluster.upsert: 26,
    Cluster.send: 25,
    Cluster.deliver: 25,
    Cluster.delete: 6,
    Cluster.expire: 6,
    Cluster.collect: 6,
    Cluster.jump: 6,
    Cluster.lose: 3,
    Cluster.partition: 3,
    Cluster.save: 2,
    Cluster.restart: 4,
    Cluster.lose_disk: 2,
    Cluster.rewrite_disk: 1,
    Cluster.add: 1,
    Cluster.remove: 3,
}
_STEPS = list(_CHANCES)
_WEIGHTS = list(accumulate(_CHANCES.values()))
