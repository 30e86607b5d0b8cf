"""One machine of a simulated cluster: a real node, a model of it, a disk and a clock."""

from __future__ import annotations

from random import Random

from tests.counters.model import Model
from tidemill.counters import Message, Node, Replica, decode, encode

US = 10**6
START_US = 1_000 * US
Shown = tuple[dict[str, int], dict[str, int]]  # live, expired

_BY_WIRE = 0.002  # of messages; the properties of the wire have tests of their own


class Clock:
    """Apart from its machine, so that a schedule is no circle and goes when it is over."""

    __slots__ = ("now_us",)

    def __init__(self) -> None:
        self.now_us = START_US

    def time_ns(self) -> int:
        return self.now_us * 1_000


class Machine:
    """What outlives a process: the disk, the clock, and its place in the cluster."""

    __slots__ = (
        "clock",
        "counted",
        "disk",
        "few",
        "is_gone",
        "model",
        "name",
        "node",
        "peers",
        "random",
        "saved",
        "unsaved",
    )

    def __init__(self, name: str, incarnation: int, random: Random, few: int) -> None:
        self.name = name
        self.random = random
        self.few = few  # rows that the node's table takes one by one
        self.clock = Clock()
        self.peers: set[int] = set()
        self.is_gone = False  # for good
        self.begin(incarnation)

    def begin(self, incarnation: int) -> None:
        """A node with nothing."""
        replica = Replica(self.name, incarnation)
        self.node = self._new_node(replica)
        self.model = self.saved = Model(replica)
        self.disk: list[Message] = []
        self.counted: dict[str, int] = {}  # by this replica, and not lost
        self.unsaved: dict[str, int] = {}
        self.seal()

    def take_up(self) -> None:
        """A process that was killed starts again, with what the disk has."""
        node = self._new_node(self.node.replica)
        for message in self.disk:
            node.load(message)
        node.seal()
        self.node = node
        self.model = self.saved.copy()
        self.unsaved = {}

    def seal(self) -> None:
        sealed = self.node.seal()
        if sealed is None:
            return
        self.disk.append(self.by_wire(sealed))
        self.saved = self.model.copy()
        if self.unsaved:
            for name, delta in self.unsaved.items():
                self.counted[name] = self.counted.get(name, 0) + delta
            self.unsaved = {}

    def by_wire(self, message: Message) -> Message:
        """Now and then what comes out of the bytes, in place of what went in."""
        return decode(encode(message)) if self.random.random() < _BY_WIRE else message

    def remembered(self) -> int:
        """How many parts and counters the node keeps that nobody counts in any more."""
        table = self.node.state.table
        used = table.parts
        versions = table.version[:used].tolist()
        counters = table.counter[:used].tolist()
        live = {counter for row, counter in enumerate(counters) if versions[row]}
        dead = sum(counter >= 0 and not versions[row] for row, counter in enumerate(counters))
        return dead + len(table) - len(live)

    def shown(self) -> Shown:
        """What the node has, by its columns: `all` takes several times as long."""
        self.node.fold()
        table, now_us = self.node.state.table, self.clock.now_us
        used = table.parts
        values, versions = table.value[:used].tolist(), table.version[:used].tolist()
        sums: dict[int, int] = {}
        for row, counter in enumerate(table.counter[:used].tolist()):
            # A dead part with a value would be a fault, and is not overlooked.
            if versions[row] or (counter >= 0 and values[row]):
                sums[counter] = sums.get(counter, 0) + values[row]
        live: dict[str, int] = {}
        expired: dict[str, int] = {}
        for counter, total in sums.items():
            is_past = table.expiry_us.item(counter) <= now_us
            (expired if is_past else live)[table.names[counter]] = total
        return live, expired

    def _new_node(self, replica: Replica) -> Node:
        node = Node(replica, now_ns=self.clock.time_ns)
        node.state.table.few = self.few
        return node
