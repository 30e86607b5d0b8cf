"""Nodes as real processes: killed under load, in chains, behind a network that breaks."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.child import Child
from tests.counters.replication.node_child import NOTE
from tests.services.server import free_port
from tests.services.tcp_proxy import Fault, TcpProxy

pytestmark = pytest.mark.slow

SYNC_MS = 50
EVENTUALLY_S = 60.0


class Process:
    """One node: the same folder and the same port in each of its lives."""

    def __init__(self, folder: Path, number: int) -> None:
        self.name = f"node-{number}"
        self.port = free_port()
        self.peers: list[str] = []
        self._folder = folder
        self._child: Child | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def note(self) -> Path:
        return self._folder / f"{self.name}.note"

    def begin(self) -> None:
        """Let Python start, which takes longest."""
        if self._child is None:
            self._child = Child("tests.counters.replication.node_child")

    def start(self, *, is_empty: bool = False, **options: Any) -> None:
        self.begin()
        path = self._folder / (self.name + ("-again" if is_empty else ""))
        options = {
            "path": str(path),
            "listen": self.address,
            "peers": self.peers,
            "sync_ms": SYNC_MS,
            "reconnect_ms": 200,
            **options,
        }
        assert self.ask("open", node=self.name, **options) == {"address": self.address}

    def ask(self, task: str, **arguments: Any) -> Any:
        assert self._child is not None
        return self._child.ask(task, **arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        return self.ask("call", method=method, arguments=list(arguments))["result"]

    def load(self) -> None:
        self.ask("load", name="visits", note=str(self.note))

    def kill(self) -> None:
        if self._child is not None:
            child, self._child = self._child, None
            child.kill()

    def bounds(self) -> tuple[int, int]:
        """What it counted for sure, and at most."""
        begun, saved = NOTE.unpack(self.note.read_bytes())
        return saved, begun


@contextmanager
def cluster(folder: Path, count: int, *, is_chain: bool = False) -> Iterator[list[Process]]:
    with ExitStack() as stack:
        nodes = [Process(folder, number) for number in range(count)]
        for number, node in enumerate(nodes):
            others = nodes[number + 1 : number + 2] if is_chain else nodes[:number]
            node.peers = [other.address for other in others]
            stack.callback(node.kill)
        for node in nodes:
            node.begin()
        for node in nodes:
            node.start()
        yield nodes


def agreed(nodes: list[Process], name: str = "visits") -> dict[str, int]:
    """The parts of a counter once all nodes have the same, and their values are the sum."""
    deadline = time.monotonic() + EVENTUALLY_S
    while True:
        found = [node.ask("parts", name=name)["result"] for node in nodes]
        if all(parts == found[0] for parts in found):
            break
        assert time.monotonic() < deadline, found
        time.sleep(SYNC_MS / 1000)  # They exchange on their own.
    parts: dict[str, int] = found[0]
    assert [node.call("get", name) for node in nodes] == [sum(parts.values())] * len(nodes)
    return parts


@pytest.mark.parametrize(("count", "is_chain"), [(3, False), (5, True)])
def test_nodes_killed_under_load_come_to_the_exact_sum(
    tmp_path: Path, count: int, is_chain: bool
) -> None:
    with cluster(tmp_path, count, is_chain=is_chain) as nodes:
        for node in nodes:
            node.load()
        killed = nodes[1]
        for _ in range(2):
            before = killed.bounds()[0]
            deadline = time.monotonic() + EVENTUALLY_S
            while killed.bounds()[0] < before + 2_000:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            killed.kill()
            killed.start()
            # Whatever was lost, nobody has seen it: the next life counts on from what it has.
            own = killed.ask("parts", name="visits")["result"][killed.name]
            low, high = killed.bounds()
            assert low <= own <= high
            killed.note.write_bytes(NOTE.pack(own, own))
            killed.load()
        for node in nodes:
            node.ask("stop")
        parts = agreed(nodes)
        assert {node.name: parts[node.name] for node in nodes} == {
            node.name: node.bounds()[0] for node in nodes
        }
        nodes[-1].call("delete", "visits")
        nodes[0].call("upsert", "other", 1)
        for node in nodes:
            node.call("sync")
        killed.kill()
        killed.start()
        deadline = time.monotonic() + EVENTUALLY_S
        while not all(node.call("all") == [{"other": 1}, {}] for node in nodes):
            assert time.monotonic() < deadline, [node.call("all") for node in nodes]
            time.sleep(SYNC_MS / 1000)


def test_nodes_are_added_and_removed_while_others_count(tmp_path: Path) -> None:
    with cluster(tmp_path, 2) as nodes, ExitStack() as stack:
        for node in nodes:
            node.load()
        late = Process(tmp_path, 2)
        late.peers = [nodes[0].address]
        stack.callback(late.kill)
        late.start()
        late.call("upsert", "visits", 5)
        nodes[1].call("add_peer", late.address)
        late.call("sync")
        # One leaves for good; what it counted stays.
        late.kill()
        nodes[0].call("remove_node", late.name)
        for node in nodes:
            node.ask("stop")
        parts = agreed(nodes)
        assert parts == {late.name: 5, **{node.name: node.bounds()[0] for node in nodes}}
        # It may come back with an empty folder, as a new life.
        late.start(is_empty=True)
        late.call("upsert", "visits", 2)
        late.call("sync")
        assert nodes[0].call("get", "visits") == sum(parts.values()) + 2


@pytest.mark.parametrize("kind", ["cut", "blackhole"])
def test_a_partition_heals_to_the_exact_sum(tmp_path: Path, kind: str) -> None:
    with cluster(tmp_path, 1) as (one,), TcpProxy(one.port, "any") as proxy, ExitStack() as stack:
        two = Process(tmp_path, 1)
        two.peers = [f"127.0.0.1:{proxy.port}"]
        stack.callback(two.kill)
        two.start(timeout_ms=1_000)
        for node in (one, two):
            node.call("upsert", "visits", 10)
        assert agreed([one, two]) == {"node-0": 10, "node-1": 10}
        if kind == "cut":
            proxy.refuse(True)
            assert proxy.cut_all() > 0
        else:
            proxy.arm(Fault(at=0, kind="blackhole", everyone=True))
            proxy.refuse(True)
        for node in (one, two):
            node.call("upsert", "visits", 1)
            node.call("upsert", "gone", 1)
        one.call("delete", "gone")
        assert two.call("sync") == {two.peers[0]: "Unavailable"}
        assert [node.call("get", "visits") for node in (one, two)] == [21, 21]
        assert kind == "cut" or proxy.fired
        proxy.refuse(False)
        proxy.cut_all()
        assert agreed([one, two]) == {"node-0": 11, "node-1": 11}
