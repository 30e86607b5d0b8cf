"""Replicated counters: one number, many masters.

Pure: `replica` (who counts), `message` and `wire` (what they tell each other), `table`,
`forgetting`, `knowledge` and `state` (the columns, what is left of dropped ones, who holds what,
and the merge), `counting`, `telling` and `node` (what users and peers do with it). With a disk and
locks: `journal` and `ledger`.
"""

from __future__ import annotations

from tidemill.counters.ledger import Ledger
from tidemill.counters.message import Message
from tidemill.counters.node import Node, NodeState
from tidemill.counters.replica import Replica, new_replica
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
    "new_replica",
]
