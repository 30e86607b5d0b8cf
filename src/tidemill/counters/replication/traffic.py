"""What went between a node and its peers, counted: rows, bytes, codes of answers, durations."""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidemill.counters import NodeState, Replica

# Upper ends of the classes in which durations are counted; one more holds what took longer.
DURATIONS_S = (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0)


@dataclass(slots=True)
class PeerTraffic:
    """Between this node and one peer, since the start of this process."""

    rows_sent: int = 0
    rows_got: int = 0
    bytes_sent: int = 0
    bytes_got: int = 0
    rounds: Counter[str] = field(default_factory=Counter)  # by how they ended: `ok`, or the error
    durations: list[int] = field(default_factory=lambda: [0] * (len(DURATIONS_S) + 1))
    duration_s_sum: float = 0.0
    is_connected: bool | None = None  # whether it answered last; None: this node does not call it
    lag_s: float = 0.0  # for how long there has been something that the peer does not know


class Traffic:
    """All peers, by node id, or by address before that is known. Any thread may count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peers: dict[str, PeerTraffic] = {}

    def round_ended(self, peer: str, code: str, duration_s: float, *, is_connected: bool) -> None:
        """Count one exchange and how it ended."""
        with self._lock:
            of = self._of(peer)
            of.rounds[code] += 1
            of.durations[bisect_left(DURATIONS_S, duration_s)] += 1
            of.duration_s_sum += duration_s
            of.is_connected = is_connected

    def sent(self, peer: str, rows: int, size: int) -> None:
        with self._lock:
            of = self._of(peer)
            of.rows_sent += rows
            of.bytes_sent += size

    def got(self, peer: str, rows: int, size: int) -> None:
        with self._lock:
            of = self._of(peer)
            of.rows_got += rows
            of.bytes_got += size

    def rename(self, before: str, after: str) -> None:
        """A peer that was known by its address has told its id."""
        with self._lock:
            old = self._peers.pop(before, None)
            if old is None:
                return
            of = self._of(after)
            of.is_connected = old.is_connected
            of.rounds.update(old.rounds)
            of.durations = [a + b for a, b in zip(of.durations, old.durations, strict=True)]
            of.duration_s_sum += old.duration_s_sum

    def called_no_more(self, peer: str) -> None:
        """Its link has ended, or leads to another now; what was counted with it stays."""
        with self._lock:
            if peer in self._peers:
                self._peers[peer].is_connected = None

    def forget(self, peer: str) -> None:
        """Drop what was counted with a peer that is gone, unless this node calls it."""
        with self._lock:
            if peer in self._peers and self._peers[peer].is_connected is None:
                del self._peers[peer]

    def peers(self) -> dict[str, PeerTraffic]:
        """A copy of everything, as of now."""
        with self._lock:
            return {
                name: PeerTraffic(
                    of.rows_sent,
                    of.rows_got,
                    of.bytes_sent,
                    of.bytes_got,
                    Counter(of.rounds),
                    list(of.durations),
                    of.duration_s_sum,
                    of.is_connected,
                    of.lag_s,
                )
                for name, of in self._peers.items()
            }

    def _of(self, peer: str) -> PeerTraffic:
        return self._peers.setdefault(peer, PeerTraffic())


class Lags:
    """For how long each peer has lacked something, by its id. One thread notes, any may ask."""

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def note(self, nodes: Mapping[Replica, NodeState]) -> None:
        """Look who is behind now."""
        now_s = time.monotonic()
        behind = {one.node for one, state in nodes.items() if state.behind and not state.is_removed}
        before = self._since_s
        self._since_s = {node: before.get(node, now_s) for node in behind}

    def now(self) -> dict[str, float]:
        now_s = time.monotonic()
        return {node: now_s - since_s for node, since_s in self._since_s.items()}
