"""What the benchmarks ask of a peer. All of it may be called from many threads at once."""

from __future__ import annotations

from typing import Protocol

from benchmarks.data import Pairs


class Peer(Protocol):
    """A queue of (key, value) pairs."""

    @property
    def name(self) -> str: ...

    def push(self, rows: Pairs) -> None:
        """Add rows, in one transaction if the peer can."""

    def pop(self, count: int) -> Pairs:
        """Take that many rows, in one transaction if the peer can."""

    def push_one(self, row: tuple[int, bytes]) -> None: ...

    def pop_one(self) -> tuple[int, bytes]: ...

    def close(self) -> None: ...
