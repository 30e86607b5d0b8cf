"""Who counts: a node, and which of its lives."""

from __future__ import annotations

import secrets
from typing import NamedTuple

from tidemill.limits import INT64_MAX
from tidemill.names import check_name


class Replica(NamedTuple):
    """One life of a node. A node that lost its state comes back under a new incarnation.

    >>> Replica("node-1", 7)
    Replica(node='node-1', incarnation=7)
    """

    node: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.node}@{self.incarnation:x}"


def new_replica(node: str) -> Replica:
    """A life that nobody has seen before: the number is drawn, because a clock may repeat itself.

    >>> new_replica("node-1") == new_replica("node-1")
    False
    """
    return Replica(check_name(node, what="node"), 1 + secrets.randbelow(INT64_MAX - 1))
