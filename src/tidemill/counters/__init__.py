"""Replicated counters: one number, many masters.

counters    the public face: a node, with its ledger and its replication
ledger      a replica with a disk and locks
journal     what a replica saved, as rows of a log in its folder
replication   over Arrow Flight
over        the end of a node, for whoever waits for it

All others are pure:

replica     who counts: a node, and which of its lives
node        one replica
counting    what users do with it; `adding` takes many updates at once, `ttl` a time
telling     which rows a message brings
message     what one replica tells another, or its disk; `wire` is that as a record batch
state       all that a replica is, and the rule by which two become one
table       parts and counters in columns
forgetting  what is left of dropped ones
knowledge   who holds what
snapshot    all values at one moment, as columns
intervals   how long a node is to wait
"""

from __future__ import annotations

from tidemill.counters.ledger import Ledger
from tidemill.counters.message import Message
from tidemill.counters.node import Node, NodeState
from tidemill.counters.replica import Replica
from tidemill.counters.wire import SCHEMA, decode, encode

__all__ = [
    "SCHEMA",
    "Ledger",
    "Message",
    "Node",
    "NodeState",
    "Replica",
    "decode",
    "encode",
]
