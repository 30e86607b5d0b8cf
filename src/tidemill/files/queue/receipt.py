"""What a push returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Durability = Literal["buffered", "synced", "replicated", "archived"]


@dataclass(frozen=True, slots=True)
class Receipt:
    """Which arrival numbers the items got, and how safe they are.

    `durability` is "synced" if they are on disk, or "buffered" if the operating system has them: a
    crash of the process loses nothing, a power failure may. Logs that are kept elsewhere may also
    say "replicated" and "archived".

    >>> import tempfile, tidemill as tm
    >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
    ...     queue.push([(3, b"c"), (1, b"a")])
    Receipt(first=1, last=2, count=2, durability='synced')
    """

    first: int
    last: int
    count: int
    durability: Durability
