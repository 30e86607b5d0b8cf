"""A node of counters as a process of its own that counts as fast as it can, until it is killed.

    python -m tests.counters.replication.node_child    (tasks come on standard input)

While it counts it notes in a file how many updates it has begun, and how many are on disk for sure:
so whoever kills it knows between which bounds its share has to be.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Any

import tidemill as tm
from benchmarks.child import Answer, serve

NOTE = struct.Struct("<qq")  # begun, saved
_UPDATES_PER_SAVE = 500
_PAUSE_S = 0.01  # lest the nodes of a test only compete for the processor


class NodeProcess:
    """The tasks of one node."""

    def __init__(self) -> None:
        self._counters: tm.Counters | None = None
        self._load: threading.Thread | None = None
        self._stopping = threading.Event()

    def open(self, node: str, **options: Any) -> Answer:
        options = {"listen": "127.0.0.1:0", **options}
        self._counters = tm.Counters(node, **options)
        return {"address": self._counters.address}

    def load(self, name: str, note: str) -> Answer:
        """Count in a thread from now on."""
        self._stopping.clear()
        # The note is there before the answer: who asked may read it at once.
        handle = os.open(note, os.O_RDWR | os.O_CREAT, 0o600)
        if not os.fstat(handle).st_size:
            os.pwrite(handle, NOTE.pack(0, 0), 0)
        self._load = threading.Thread(target=self._count, args=(name, handle), daemon=True)
        self._load.start()
        return {}

    def stop(self) -> Answer:
        self._stopping.set()
        if self._load is not None:
            self._load.join()
        return {}

    def call(self, method: str, *arguments: Any) -> Answer:
        """Whatever a node can do, with a result that JSON can hold."""
        return {"result": getattr(self._node, method)(*arguments)}

    def parts(self, name: str) -> Answer:
        return {"result": {by.node: n for by, n in self._node.parts(name).items()}}

    @property
    def _node(self) -> tm.Counters:
        assert self._counters is not None
        return self._counters

    def _count(self, name: str, handle: int) -> None:
        begun, saved = NOTE.unpack(os.pread(handle, NOTE.size, 0))
        while not self._stopping.is_set():
            begun += _UPDATES_PER_SAVE
            os.pwrite(handle, NOTE.pack(begun, saved), 0)
            for _ in range(_UPDATES_PER_SAVE):
                self._node.upsert(name)
            self._node.save()
            saved += _UPDATES_PER_SAVE
            os.pwrite(handle, NOTE.pack(begun, saved), 0)
            self._stopping.wait(_PAUSE_S)


if __name__ == "__main__":
    process = NodeProcess()
    serve(
        {
            "open": process.open,
            "load": process.load,
            "stop": process.stop,
            "call": lambda method, arguments: process.call(method, *arguments),
            "parts": process.parts,
        }
    )
