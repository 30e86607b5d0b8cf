"""One machine of a simulated cluster: a real node, a model of it, a disk and a clock."""

from __future__ import annotations

from random import Random

from tests.counters.model import Expiry, Model
from tidemill.counters import Message, Node, Replica, decode, encode
from tidemill.counters.table import NEVER

NAMES = ("x", "y")
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

    def agree_on_expiries(self, above: int = -1) -> None:
        """Tell the model, which never forgets, what the node has of expiries above an edition."""
        table, knowledge = self.node.state.table, self.node.state.knowledge
        for name in NAMES:
            counter = table.index.get(name)
            edition = 0 if counter is None else table.edition.item(counter)
            if counter is None or edition <= max(above, 0):
                if above < 0:
                    self.model.forget_expiry(name)
                continue
            time_us, by = table.expiry_us.item(counter), table.expiry_by.item(counter)
            told = Expiry(edition, knowledge.replicas[by], None if time_us == NEVER else time_us)
            self.model.agree_on_expiry(name, told)

    def agree_on_parts(self, ended: set[Replica]) -> None:
        """Tell the model what the node has of lives that ended."""
        live, expired = self.shown()
        for name in NAMES:
            values = self.node.parts(name) if name in live or name in expired else {}
            for replica in ended:
                value, key = values.get(replica), (name, replica)
                if value != self.model.value(key):
                    self.model.agree_on_part(key, value)

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
