"""A node of counters as a process: counts, then says when it knew of everything."""

from __future__ import annotations

import time

import tidemill as tm
from benchmarks.child import Answer, serve

_WAIT_S_MAX = 60.0
_nodes: list[tm.Counters] = []


def open_node(node: str, path: str, peers: list[str], sync_ms: int) -> Answer:
    _nodes.append(tm.Counters(node, path=path, listen="127.0.0.1:0", peers=peers, sync_ms=sync_ms))
    return {"address": _nodes[0].address}


def count(counters: int) -> Answer:
    """One update of each counter; returns when that was done."""
    _nodes[0].upsert_many([f"counter-{number}" for number in range(counters)], 1)
    return {"done_s": time.monotonic()}


def wait(counters: int, each: int) -> Answer:
    """When this node knew of all updates of all nodes; the clock is the machine's."""
    deadline = time.monotonic() + _WAIT_S_MAX
    # One is asked for, as looking at all of them takes as long as an exchange; those that one node
    # counted arrive together.
    while _nodes[0].get(f"counter-{counters - 1}") != each:
        if time.monotonic() > deadline:
            raise RuntimeError("the nodes do not converge")
        time.sleep(0.005)
    knew_s = time.monotonic()
    if set(_nodes[0].all()[0].values()) != {each}:
        raise RuntimeError("a node knows of a part of the updates only")
    return {"knew_s": knew_s}


if __name__ == "__main__":
    serve({"open": open_node, "count": count, "wait": wait})
    for opened in _nodes:
        opened.close()
