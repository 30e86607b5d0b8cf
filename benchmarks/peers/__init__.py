"""The queues that a Python user would pick, each through its own interface, as fast as it allows.

Only the hand-written table can order by key; the others are first in, first out, which for
ascending keys comes to the same and spares them the ordering.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.disk_cache import DiskCache
from benchmarks.peers.lite_queue import LiteQueue
from benchmarks.peers.peer import Peer
from benchmarks.peers.persist_queue import PersistQueue, PersistQueueOfBatches
from benchmarks.peers.sqlite_table import SqliteTable
from benchmarks.progress import say

__all__ = ["Peer", "PersistQueueOfBatches", "open_peers"]

_PEERS: dict[str, Callable[[Path, bool], Peer]] = {
    "sqlite3": SqliteTable,
    "persistqueue": PersistQueue,
    "diskcache": DiskCache,
    "litequeue": LiteQueue,
}


def open_peers(folder: Path, *, sync: bool) -> list[Peer]:
    """All that are installed, each in a folder of its own."""
    peers = []
    for module, make in _PEERS.items():
        if not is_installed(module):
            say(f"{module} is not installed: left out")
            continue
        path = folder / module
        path.mkdir(parents=True)
        peers.append(make(path, sync))
    return peers


def is_installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None
