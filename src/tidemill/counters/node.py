"""One replica of the counters, with no clock, disk, network or lock of its own.

Its work goes by turns. Counting and merging belong to the open turn; `seal` closes it and returns
what changed in it, for the disk; `delta` says what a peer lacks of all closed turns. The one rule
for whoever does the writing and sending:

    What `seal` returned is on disk before anything leaves that `delta` or `hello` made later.

So peers never know a turn that a restart could take back. Nothing else has to be kept: a message
may be lost, come twice, or late, or overtake another, and each says what its sender holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tidemill.counters.message import (
    EMPTY,
    NO_EXPIRIES,
    NO_PARTS,
    NOBODY,
    OWN,
    Drop,
    Expiries,
    Ints,
    Message,
    Parts,
    Removal,
)
from tidemill.counters.replica import Replica
from tidemill.counters.state import State
from tidemill.counters.telling import Telling
from tidemill.errors import Bug, DuplicateNode, InvalidInput, NodeRemoved


class NodeState(NamedTuple):
    """What is known of a replica."""

    is_removed: bool
    behind: int  # turns of this replica that it has not acknowledged


class Node(Telling):
    """A replica that counts, and tells others.

    >>> from tidemill.counters import Node, Replica
    >>> from tidemill.clock import SystemClock
    >>> a, b = (Node(Replica(name, 1), now_ns=SystemClock().time_ns) for name in "ab")
    >>> a.upsert("visits", 100), b.upsert("visits", 70)
    (100, 70)
    >>> for_the_disk = a.seal(), b.seal()
    >>> b.receive(a.hello())
    >>> for_the_disk = b.seal()
    >>> a.receive(b.delta(a.replica))
    >>> for_the_disk = a.seal()
    >>> b.receive(a.delta(b.replica))
    >>> a.get("visits"), b.get("visits")
    (170, 170)
    """

    def __init__(
        self, replica: Replica, *, now_ns: Callable[[], int], is_reader: bool = False
    ) -> None:
        super().__init__(replica, now_ns, is_reader=is_reader)
        self._readers: dict[Replica, dict[Replica, int]] = {}  # what those hold that never count
        self._told: dict[Replica, int] = {}  # the news that each peer had last
        self._news = 1  # rises when what is known of replicas changes
        self._is_unsaved = True  # what is known of replicas, and who this one is

    def seal(self) -> Message | None:
        """Close the turn, if anything changed in it: what has to be saved. None: nothing."""
        state = self.state
        self.fold()
        if not (state.is_changed or self._is_unsaved):
            return None
        parts, expiries = NO_PARTS, NO_EXPIRIES
        if state.is_changed:
            table, turn = state.table, state.turn
            parts = self._parts(table.stamp[: table.parts] == turn)
            expiries = self._expiries(table.expiry_stamp[: table.counters] == turn)
        message = self._message(
            parts=parts, expiries=expiries, forgotten=state.knowledge.forgotten.drops()
        )
        # Only now: peers would be told of a turn that is closed, and the disk would never have it.
        if state.is_changed:
            message.versions[OWN] = state.knowledge.versions[OWN] = state.turn
            state.turn += 1
            state.is_changed = False
            self._news += 1
        self._is_unsaved = False
        return message

    def snapshot(self) -> Message:
        """Everything, for a disk that is to forget what it had before. The turn is closed."""
        self._check_sealed()
        table = self.state.table
        return self._message(
            parts=self._parts(table.stamp[: table.parts] > 0),
            expiries=self._expiries(table.expiry_stamp[: table.counters] > 0),
            forgotten=self.state.knowledge.forgotten.drops(),
        )

    def load(self, message: Message) -> None:
        """Take back what was saved, one message after the other, before anything else is done."""
        state = self.state
        local = state.knowledge.add(message.replicas)
        if local[OWN] != OWN:
            raise Bug(f"{message.sender} saved this, not {self.replica}")
        state.turn = int(message.versions[OWN])
        state.merge_parts(message.parts, local, is_trusted=True)
        state.merge_expiries(message.expiries, local, is_trusted=True)
        state.knowledge.hold(message, local)
        self._remove_all(message.removed, local)
        state.knowledge.forgotten.load(message.forgotten, local)
        state.knowledge.forgotten.hear(message.dropped, local)
        state.edition = max(state.edition, message.edition)
        state.turn += 1
        state.is_changed = self._is_unsaved = False

    def hello(self) -> Message:
        """What this replica holds, and nothing of it: the first message to a stranger."""
        self._check_sealed()
        return self._message(is_hello=True)

    def delta(self, peer: Replica) -> Message | None:
        """What a peer lacks, of all that is here; None if it lacks nothing, and knows so.

        The peer is one that a message came from, or that others told of.
        """
        self._check_sealed()
        held = self._held_by(peer)
        if self.is_reader:
            return None  # Nobody takes anything from those that never count; they say hello.
        table = self.state.table
        since = held.item(OWN)
        is_full = since < self._missed(peer)
        stamped = table.stamp[: table.parts]
        parts, expiries = NO_PARTS, NO_EXPIRIES
        if since < self.state.turn - 1 or is_full:
            parts = self._parts(
                stamped > 0 if is_full else stamped > since,
                None if is_full else held,
                peer,
            )
            expiries = self._expiries(
                table.expiry_stamp[: table.counters] > (0 if is_full else since),
                None if is_full else held,
            )
        # What is full says something also where it brings nothing.
        if not (is_full or parts.names or expiries.names or self._told.get(peer) != self._news):
            return None
        self._told[peer] = self._news
        return self._message(
            parts=parts,
            expiries=expiries,
            is_full=is_full,
            since=held,
            receiver=peer,
            forgotten=self.state.knowledge.drops() if is_full else (),
        )

    def receive(self, message: Message) -> None:
        """Take what a peer sent. It goes to the disk with the next `seal`."""
        sender = message.sender
        self._check_sender(message)
        if message.is_reader:
            self._hear_reader(message)
            return
        self.fold()
        if self._is_astray and message.since is not None and not np.count_nonzero(message.since):
            self._start_again()
        state, knowledge = self.state, self.state.knowledge
        state.edition = max(state.edition, message.edition)
        size = len(knowledge.replicas)
        local = knowledge.add(message.replicas)
        is_news = len(knowledge.replicas) > size
        held = knowledge.versions[local]
        if message.since is None or np.count_nonzero(message.since < held):
            # What it was told did not arrive, or not yet; so it is told again.
            self._told.pop(sender, None)
        # What was made for a life before this one leaves out what that one had.
        is_ours = message.receiver >= 0 and local[message.receiver] == OWN
        if self.is_reader:
            # Of readers nobody has a number; and one that starts again holds less than before.
            is_ours = not self._is_behind(message, held)
        if is_ours and not message.is_hello:
            self._check_since(message, held)
            is_news |= self._merge(message, local)
        is_news |= knowledge.learn(message, local)
        is_news |= self._retire_old_selves()
        if is_news:
            self._news += 1
            self._is_unsaved = True
        self._look_for_own_removal(message)

    def _hear_reader(self, message: Message) -> None:
        """Note what it holds, and which lives of this node it knows: it may be the only one left
        that had heard of them, and has to hear that they are over.
        """
        turns = message.versions.tolist()
        self._readers[message.sender] = dict(zip(message.replicas, turns, strict=True))
        if not any(turns):
            # It starts, perhaps again; then it has to be told even that there is nothing.
            self._told.pop(message.sender, None)
        if self.is_reader:
            return
        self._look_for_own_removal(message)
        others = message.replicas[1:]
        self.state.knowledge.add([one for one in others if one.node == self.replica.node])
        self._retire_old_selves()

    @property
    def _is_astray(self) -> bool:
        """Whether this is a reader that holds what none of those who count will ever hold.

        It then says that it holds nothing, and starts again with the first answer to that, so that
        it shows something all the time.
        """
        return self.is_reader and self.state.knowledge.is_ahead_of_all()

    def _start_again(self) -> None:
        self.state = State(self.replica, is_reader=True)

    def _merge(self, message: Message, local: Ints) -> bool:
        """Take all rows; the sender's state is within ours then. Whether that is news."""
        state = self.state
        rows = EMPTY
        if message.parts.names:
            rows = state.merge_parts(message.parts, local)
        if message.is_full:
            state.drop_absent(rows, message, local)
        if state.knowledge.forgotten.hear(message.dropped, local) and message.is_full:
            state.knowledge.forgotten.inherit(state.turn, message.forgotten, local)
            state.doubt_rest(rows, message)
            state.is_changed = True
        if message.expiries.names:
            state.merge_expiries(message.expiries, local)
        is_news = self._remove_all(message.removed, local)
        return state.knowledge.hold(message, local) or is_news

    def collect(self) -> int:
        """Delete what has expired, and drop the dead parts that everybody knows to be dead.

        Returns how many parts were dropped.
        """
        self.fold()
        self.delete_expired()
        return self.state.drop_dead()

    def remove_node(self, node: str) -> None:
        """Wait for a node no longer. What it counted stays; it can come back empty."""
        self.check_writable()
        if node == self.replica.node:
            raise InvalidInput(f"{node} is this node; another one has to remove it")
        self.fold()
        knowledge = self.state.knowledge
        lives = [n for n, replica in enumerate(knowledge.replicas) if replica.node == node]
        if not lives:
            raise InvalidInput(f"no node {node!r} is known here; look at nodes()")
        for number in lives:
            self._remove(number)

    def nodes(self) -> dict[Replica, NodeState]:
        """All replicas that are known, but this one."""
        knowledge = self.state.knowledge
        held = knowledge.known[:, OWN].tolist()
        return {
            replica: NodeState(number in knowledge.removed, max(0, self.state.turn - 1 - turn))
            for number, (replica, turn) in enumerate(zip(knowledge.replicas, held, strict=True))
            if number != OWN
        }

    def forget_reader(self, reader: Replica) -> None:
        """A replica that never counts is gone; it is forgotten at once."""
        self._readers.pop(reader, None)
        self._told.pop(reader, None)

    def _held_by(self, peer: Replica) -> Ints:
        knowledge = self.state.knowledge
        if (reader := self._readers.get(peer)) is not None:
            held = [reader.get(replica, 0) for replica in knowledge.replicas]
            return np.array(held, dtype=np.int64)
        number = knowledge.find(peer)
        if number is None or number == OWN:
            raise InvalidInput(f"nothing was heard of {peer} yet; start with hello()")
        if number in knowledge.removed:
            raise NodeRemoved(f"{peer} was removed; it can come back empty", replica=peer)
        return knowledge.known[number].copy()

    def _missed(self, peer: Replica) -> int:
        """The last turn in which something was dropped that a peer may not know to be dead."""
        forgotten = self.state.knowledge.forgotten
        number = self.state.knowledge.find(peer)
        # Nobody waits for those that never count.
        return forgotten.turn if number is None else forgotten.turns.item(number)

    def _message(
        self,
        *,
        parts: Parts = NO_PARTS,
        expiries: Expiries = NO_EXPIRIES,
        is_hello: bool = False,
        is_full: bool = False,
        since: Ints | None = None,
        receiver: Replica | None = None,
        forgotten: Sequence[Drop] = (),
    ) -> Message:
        knowledge = self.state.knowledge
        number = None if receiver is None else knowledge.find(receiver)
        known: Mapping[int, Ints] = {}
        needy = knowledge.needy(self.state.has_dead)
        # Only who still has something to drop needs to know what everybody holds; it may hear it
        # through others only.
        if knowledge.removed or np.count_nonzero(needy):
            known = {
                number: knowledge.known[number].copy()
                for number in range(1, len(knowledge.replicas))
                if np.count_nonzero(knowledge.known[number])
            }
        return Message(
            replicas=list(knowledge.replicas),
            versions=knowledge.versions * (not self._is_astray),
            receiver=NOBODY if number is None else number,
            is_hello=is_hello,
            is_reader=self.is_reader,
            is_full=is_full,
            known=known,
            needy=needy,
            dropped=knowledge.forgotten.last.copy(),
            removed=list(knowledge.removed.values()),
            parts=parts,
            expiries=expiries,
            forgotten=forgotten,
            edition=self.state.edition,
            since=since,
        )

    @property
    def is_unsealed(self) -> bool:
        """Whether there is something that `seal` would return."""
        return self.is_open or self.state.is_changed or self._is_unsaved

    def _check_sealed(self) -> None:
        if self.is_unsealed:
            raise Bug("a turn is open; it has to be sealed and saved first")

    def _check_sender(self, message: Message) -> None:
        """Refuse those who were removed, and whoever counts under this replica's name."""
        sender, knowledge = message.sender, self.state.knowledge
        if self.refusal is not None:
            raise self.refusal
        if sender == self.replica:
            raise self._duplicate(f"a message came from another {self.replica}")
        number = knowledge.find(sender)
        if number is not None and number in knowledge.removed:
            raise NodeRemoved(f"{sender} was removed; it can come back empty", replica=sender)
        if self.replica in message.replicas:
            known = message.versions[message.replicas.index(self.replica)]
            if known > knowledge.versions[OWN]:
                raise self._duplicate(
                    f"{sender} knows turn {known} of {self.replica}, "
                    f"which has come to {knowledge.versions[OWN]} only"
                )

    def _check_since(self, message: Message, held: Ints) -> None:
        """A peer that leaves out what it thinks is here has to be right about that."""
        if self._is_behind(message, held):
            raise self._duplicate(f"{message.sender} thinks that more is here than there is")

    @staticmethod
    def _is_behind(message: Message, held: Ints) -> bool:
        """Whether it leaves out what is not here."""
        return message.since is not None and bool(np.count_nonzero(message.since > held))

    def _duplicate(self, what: str) -> DuplicateNode:
        error = DuplicateNode(
            f"{what}: either another process counts as {self.replica.node!r}, or this one was "
            "started from an old copy of its folder. Stop the other one; or empty the folder, and "
            "start again under a new incarnation",
            replica=self.replica,
        )
        self.refuse(error)
        return error

    def _remove_all(self, removals: Sequence[Removal], local: Ints) -> bool:
        is_news = False
        for one in removals:
            number, by = local.item(one.replica), local.item(one.by)
            is_news |= self.state.knowledge.remove(number, by, one.by_version)
        return is_news

    def _remove(self, number: int) -> None:
        """Say so in this turn."""
        if self.state.knowledge.remove(number, OWN, self.state.turn):
            self.state.is_changed = self._is_unsaved = True
            self._news += 1

    def _retire_old_selves(self) -> bool:
        """A life of this node that is known and is not this one is over."""
        if self.is_reader:
            return False
        knowledge, node = self.state.knowledge, self.replica.node
        old = [
            number
            for number, replica in enumerate(knowledge.replicas)
            if replica.node == node and number != OWN and number not in knowledge.removed
        ]
        for number in old:
            self._remove(number)
        return bool(old)

    def _look_for_own_removal(self, message: Message) -> None:
        for removal in message.removed:
            if message.replicas[removal.replica] != self.replica:
                continue
            by = message.replicas[removal.by]
            if by.node == self.replica.node:
                raise self._duplicate(f"{by} took the place of {self.replica}")
            error = NodeRemoved(
                f"{by} removed this node ({self.replica}); empty its folder, and start it again",
                replica=self.replica,
            )
            self.refuse(error)
            raise error
