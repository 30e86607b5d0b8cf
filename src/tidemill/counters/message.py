"""What one replica tells another, or its own disk: parts, expiries, and what it knows.

A message is columns, as the state is. Its replicas are numbered by a list of its own, so that a row
needs a small number in place of a name. `versions` says what the sender holds, for each of them:
everything that this replica held when it closed that turn. So a message is an acknowledgement, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tidemill.counters.replica import Replica

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

NOBODY = -1  # in place of a replica
OWN = 0  # the number of the sender in a message, and of a replica in its own state
EMPTY: Ints = np.zeros(0, dtype=np.int64)
EMPTY.setflags(write=False)


class Parts(NamedTuple):
    """Shares of counters, a row each. The greatest (generation, version) of a part is newest."""

    names: list[str]
    owner: Ints  # who counts here
    generation: Ints  # how often it was deleted
    version: Ints  # the owner's turn that changed it last; 0: not since this generation began
    value: Ints
    by: Ints  # who began the generation, or nobody
    by_version: Ints  # in which turn of theirs


class Expiries(NamedTuple):
    """When counters expire, a row each. The greatest (edition, replica) is the newest."""

    names: list[str]
    time_us: Ints  # NEVER: it does not
    edition: Ints  # above every one that whoever set it had seen, of whatever counter
    by: Ints
    by_version: Ints


class Removal(NamedTuple):
    """A replica that nobody waits for any more, and who said so in which turn."""

    replica: int
    by: int
    by_version: int


class Drop(NamedTuple):
    """What is left of what was dropped, for one replica: see `Forgotten`."""

    replica: int
    generation: int
    edition: int
    turn: int


NO_PARTS = Parts([], EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY)
NO_EXPIRIES = Expiries([], EMPTY, EMPTY, EMPTY, EMPTY)


class Message(NamedTuple):
    """Made by `hello`, `delta` and `seal` of a node; read by `receive` and `load`."""

    replicas: list[Replica]  # the first is the sender
    versions: Ints  # what the sender holds, for each of them
    receiver: int = NOBODY  # for whom it was made, if it leaves out what that one has
    is_hello: bool = False  # it says what the sender holds, and brings nothing of it
    is_reader: bool = False  # the sender never counts, and is not waited for
    is_full: bool = False  # what the sender holds and does not mention is gone
    known: Mapping[int, Ints] = MappingProxyType({})  # what others hold, as the sender knows it
    needy: Ints = EMPTY  # 1: this replica had something to drop, in that turn
    dropped: Ints = EMPTY  # the last turn in which each dropped something, as the sender heard
    removed: Sequence[Removal] = ()
    forgotten: Sequence[Drop] = ()  # for the sender's disk, and in what is full
    parts: Parts = NO_PARTS
    expiries: Expiries = NO_EXPIRIES
    since: Ints | None = None  # what the receiver held, as the sender knows; less is not sent
    edition: int = 0  # the last one that the sender has seen, of any counter's expiry

    @property
    def sender(self) -> Replica:
        return self.replicas[0]

    @property
    def rows(self) -> int:
        """How many parts and expiries it brings."""
        return len(self.parts.names) + len(self.expiries.names)
