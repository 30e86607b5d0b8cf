"""Two live nodes of one id, told from one node that was started again. Pure.

Every process of a node draws a token. A token that was not seen before supersedes the one before
it: the node was restarted. The older one must then never be seen again; if it is, both live.

    node-1 as a7 ──▶ known    node-1 as c2 ──▶ restarted    node-1 as a7 ──▶ a duplicate: refused

Whoever is refused halts. Nothing here depends on a clock: a process that was paused for an hour
while its successor took over is refused as well, and rightly. Only those are noted whose message
was taken: one that is refused as removed must not supersede the process that took its place.
"""

from __future__ import annotations

from collections import OrderedDict

from tidemill.errors import DuplicateNode
from tidemill.limits import COUNTER_PEERS_MAX, SUPERSEDED_MAX


class Sightings:
    """Which process speaks for which node.

    >>> seen = Sightings()
    >>> seen.note("node-1", "a7"); seen.note("node-1", "c2"); seen.check("node-1", "c2")
    >>> seen.check("node-1", "a7")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidemill.errors.DuplicateNode: two live nodes are called node-1: ...
    """

    def __init__(self) -> None:
        self._tokens: OrderedDict[str, list[str]] = OrderedDict()  # the last is the present one

    def check(self, node: str, token: str) -> None:
        """Raise if somebody newer has spoken for the same node."""
        tokens = self._tokens.get(node, [])
        if token in tokens and token != tokens[-1]:
            raise duplicate(node)

    def note(self, node: str, token: str) -> None:
        """Whoever speaks was believed; who spoke for the node before must not do so again."""
        tokens = self._tokens.setdefault(node, [])
        self._tokens.move_to_end(node)
        if token not in tokens:
            tokens.append(token)
            del tokens[:-SUPERSEDED_MAX]
            # As many as there may be peers, since every node that calls is remembered here.
            while len(self._tokens) > 4 * COUNTER_PEERS_MAX:
                self._tokens.popitem(last=False)


def duplicate(node: str) -> DuplicateNode:
    return DuplicateNode(
        f"two live nodes are called {node}: this one has stopped, and its data is kept; "
        "give one of them another id and a folder of its own"
    )
