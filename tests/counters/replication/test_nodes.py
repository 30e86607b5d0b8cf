"""Nodes in one process that exchange over real connections."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import tidemill as tm
from tests.counters.replication.certificates import Authority
from tests.services.server import free_port
from tidemill.counters import Ledger
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.caller import Caller
from tidemill.counters.replication.link import EXCHANGE
from tidemill.counters.replication.parcel import TOKEN_BYTES, pack, unpack
from tidemill.counters.replication.server import Server
from tidemill.limits import COUNTER_INTERVAL_MS_MAX

Start = Callable[..., tm.Counters]

NEVER_MS = 3_600_000  # in a test that says itself when nodes exchange
EVENTUALLY_S = 60.0


@pytest.fixture
def start() -> Iterator[Start]:
    """Nodes that are closed at the end, in the reverse order."""
    with ExitStack() as stack:

        def begin(node: str, **options: Any) -> tm.Counters:
            options = {"listen": "127.0.0.1:0", "sync_ms": NEVER_MS, **options}
            return stack.enter_context(tm.Counters(node, **options))

        yield begin


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + EVENTUALLY_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)  # What another thread or process does tells nobody here.


def settle(*nodes: tm.Counters) -> None:
    """Exchange until everybody has heard of everything, over any chain of so few."""
    for _ in nodes:
        for node in nodes:
            node.sync()


def test_three_nodes_come_to_the_sum(start: Start) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address])
    three = start("node-3", peers=[one.address, two.address])
    for node, delta in ((one, 100), (two, 170), (three, -90)):
        assert node.upsert("visits", delta) == delta
    settle(one, two, three)
    assert [node.get("visits") for node in (one, two, three)] == [180] * 3
    assert {by.node: n for by, n in one.parts("visits").items()} == {
        "node-1": 100,
        "node-2": 170,
        "node-3": -90,
    }


def test_a_chain_relays_both_ways(start: Start) -> None:
    nodes = [start("node-0")]
    for number in range(1, 4):
        nodes.append(start(f"node-{number}", peers=[nodes[-1].address]))
    for number, node in enumerate(nodes):
        node.upsert("visits", 10**number)
    settle(*nodes)
    assert [node.get("visits") for node in nodes] == [1111] * 4
    nodes[0].delete("visits")
    settle(*nodes)
    for node in nodes:
        with pytest.raises(tm.NoSuchCounter):
            node.get("visits")


def test_many_updates_of_one_counter_are_one_row_on_the_wire(start: Start) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address])
    two.sync()
    before = two.metrics()["node-1"]
    for _ in range(1_000):
        two.upsert("visits")
    two.sync()
    after = two.metrics()["node-1"]
    assert after.rows_sent - before.rows_sent == 1
    assert after.bytes_sent - before.bytes_sent < 2_000
    two.sync()
    assert two.metrics()["node-1"].rows_sent == after.rows_sent, "what is acked is not sent again"
    assert one.get("visits") == 1_000


def test_nodes_exchange_by_themselves(start: Start) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address], sync_ms=20)
    one.upsert("a", 1)
    two.upsert("b", 2)
    eventually(lambda: one.all()[0] == two.all()[0] == {"a": 1, "b": 2})


def test_a_full_buffer_is_sent_at_once(start: Start) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address], sync_ms=NEVER_MS, buffer_max=10)
    two.sync()
    two.upsert("before", 1)
    two.upsert_many([f"c{number}" for number in range(20)], 1)
    eventually(lambda: len(one.all()[0]) == 21)


def test_a_peer_that_was_away_gets_everything(start: Start, tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port()}"
    one = start("node-1", peers=[address], sync_ms=20, reconnect_ms=50)
    one.upsert("visits", 5)
    assert one.sync() == {address: "Unavailable"}
    two = start("node-2", listen=address)
    eventually(lambda: two.all()[0] == {"visits": 5})
    two.close()
    one.upsert("visits", 1)
    # Another life of the same node, without its state.
    again = start("node-2", listen=address)
    eventually(lambda: again.all()[0] == {"visits": 6})
    assert one.metrics()["node-2"].rounds["Unavailable"] >= 1


def test_a_node_keeps_what_it_counted(start: Start, tmp_path: Path) -> None:
    one = start("node-1")
    two = start("node-2", path=tmp_path / "two", peers=[one.address])
    two.upsert("visits", 7)
    two.close()
    assert one.get("visits") == 7, "a node that closes tells those it can reach"
    two = start("node-2", path=tmp_path / "two", peers=[one.address])
    assert two.upsert("visits", 1) == 8
    settle(one, two)
    assert one.get("visits") == 8
    assert len(one.parts("visits")) == 1


def test_a_read_only_node_follows(start: Start) -> None:
    one = start("node-1")
    one.upsert("visits", 5)
    reader = start("reader", peers=[one.address], read_only=True)
    settle(one, reader)
    assert reader.get("visits") == 5
    with pytest.raises(tm.ReadOnly):
        reader.upsert("visits", 1)


def test_a_snapshot_names_the_counter_that_left_the_range(start: Start) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address])
    for node in (one, two):
        node.upsert("visits", 2**62)
        node.upsert("fine")
    settle(one, two)
    with pytest.raises(tm.CounterOverflow, match="'visits' has left the range"):
        one.snapshot()
    one.delete("visits")
    assert one.snapshot().to_pylist() == [{"node": "node-1", "counter": "fine", "value": 2}]


def test_readers_that_a_node_called_are_forgotten(start: Start) -> None:
    one = start("node-1")
    one.upsert("visits", 5)
    known = one._real._node._readers
    address = f"127.0.0.1:{free_port()}"
    for _ in range(2):
        one.add_peer(address)
        for _ in range(2):
            # Whoever was there before was closed, and is not known any more.
            reader = start("reader", listen=address, read_only=True)
            eventually(lambda: one.sync() == {address: "ok"})
            assert reader.get("visits") == 5
            assert list(known) == [reader._real.replica]
            reader.close()
        one.remove_peer(address)
        eventually(lambda: not known)


def test_peers_come_and_go(start: Start) -> None:
    one, two = start("node-1"), start("node-2")
    one.add_peer(two.address)
    one.add_peer(two.address)
    assert one.peers == [two.address]
    one.upsert("visits", 1)
    assert one.sync() == {two.address: "ok"}
    one.remove_peer(two.address)
    with pytest.raises(tm.InvalidInput, match="is no peer of node-1"):
        one.remove_peer(two.address)
    one.upsert("visits", 1)
    assert one.sync() == {}
    assert two.get("visits") == 1
    with pytest.raises(tm.InvalidInput, match="is no address"):
        one.add_peer("somewhere")


@pytest.mark.parametrize("kind", ["function", "file"])
def test_a_provider_says_who_is_there(
    start: Start,
    tmp_path: Path,
    kind: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemill.counters.counters._LOOK_S", 0.02)
    one, two = start("node-1"), start("node-2")
    file = tmp_path / "peers"

    def write(text: str) -> None:
        (tmp_path / "draft").write_text(text)
        (tmp_path / "draft").replace(file)

    def ask() -> list[str]:
        return [line.split()[0] for line in file.read_text().splitlines() if line]

    write(f"{one.address}\n\n")
    three = start("node-3", peers=file if kind == "file" else ask, sync_ms=20)
    three.upsert("visits", 3)
    eventually(lambda: one.all()[0] == {"visits": 3})
    write(f"{two.address}  # the other\n{three.address}\n")
    eventually(lambda: two.all()[0] == {"visits": 3} and one.address not in three.peers)
    write("nowhere")
    eventually(lambda: "the peers stay as they were" in caplog.text)
    file.unlink()
    eventually(lambda: caplog.text.count("the peers stay as they were") > 1)
    assert two.address in three.peers, "a list that makes no sense changes nothing"
    assert three.halted is None, "a node may find itself in a list of all nodes"


def test_closing_does_not_wait_for_a_provider_that_does_not_return(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidemill.counters.counters._CLOSE_S_MAX", 0.01)
    asked, may_return = threading.Event(), threading.Event()

    def ask() -> list[str]:
        asked.set()
        may_return.wait(EVENTUALLY_S)
        return ["127.0.0.1:9"]

    one = start("node-1", peers=ask)
    assert asked.wait(EVENTUALLY_S)
    one.close()
    assert one._keeper.is_alive()
    may_return.set()
    one._keeper.join(EVENTUALLY_S)
    assert not one._keeper.is_alive()
    assert (one.peers, caplog.messages) == ([], [])


def test_certificates_let_nodes_in(start: Start, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    ours, foreign = Authority(tmp_path), Authority(tmp_path / "foreign")
    one = start("node-1", tls=ours.issue("node-1"))
    two = start("node-2", tls=ours.issue("node-2"), peers=[one.address])
    one.upsert("visits", 1)
    assert two.sync() == {one.address: "ok"}
    assert two.get("visits") == 1
    stranger = start("node-3", tls=foreign.issue("node-3"), peers=[one.address])
    assert stranger.sync() == {one.address: "NoAccess"}
    plain = start("node-4", peers=[one.address])
    assert plain.sync() == {one.address: "Unavailable"}
    one.upsert("visits", 1)
    two.sync()
    assert two.get("visits") == 2, "all others live on"


@pytest.mark.parametrize("name", [None, "node-5"])
def test_nobody_speaks_for_a_node_without_its_name(
    start: Start, tmp_path: Path, name: str | None
) -> None:
    authority = Authority(tmp_path)
    one = start("node-1", tls=authority.issue("node-1"))
    tls = authority.issue_nameless() if name is None else authority.issue(name)
    with (
        Ledger("node-2") as liar,
        Caller(Address.of(one.address), tls.read(), timeout_s=30) as caller,
    ):
        liar.upsert("visits", 1)
        with pytest.raises(tm.NoAccess, match=f"of {name or 'nobody'} does not speak for node-2"):
            caller.call(EXCHANGE, pack(liar.hello(), b"t" * TOKEN_BYTES))
    assert one.all() == ({}, {})


@pytest.mark.parametrize("name", [None, "node-5"])
def test_a_node_opens_with_its_own_certificate_only(tmp_path: Path, name: str | None) -> None:
    authority = Authority(tmp_path)
    tls = authority.issue_nameless() if name is None else authority.issue(name)
    with pytest.raises(tm.NoAccess, match=f"speaks for {name or 'nobody'}, not for node-1"):
        tm.Counters("node-1", path=tmp_path / "node", listen="127.0.0.1:0", tls=tls)
    assert not (tmp_path / "node").exists()
    mixed = tm.Tls(authority.issue("node-1").certificate, tls.key, tls.authority)
    with pytest.raises(tm.InvalidInput, match="belong together"):
        tm.Counters("node-1", tls=mixed)


def test_beyond_this_machine_certificates_are_needed() -> None:
    with pytest.raises(tm.InvalidInput, match="insecure=True"):
        tm.Counters("node-1", listen="0.0.0.0:0")
    with tm.Counters("node-1", listen="0.0.0.0:0", insecure=True) as counters:
        assert counters.address.startswith("0.0.0.0:")


def test_a_second_node_of_one_name_stops(start: Start) -> None:
    hub = start("hub")
    first = start("node-1", peers=[hub.address])
    first.sync()
    second = start("node-1", peers=[hub.address])
    second.sync()
    first.upsert("visits")
    first.sync()
    second.upsert("visits")
    second.sync()
    halted = [one for one in (first, second) if one.halted is not None]
    assert len(halted) == 1
    error = halted[0].wait_halted(EVENTUALLY_S)
    assert isinstance(error, tm.DuplicateNode)
    with pytest.raises(tm.DuplicateNode, match="node-1"):
        halted[0].upsert("visits")
    hub.upsert("still", 1)
    other = second if halted[0] is first else first
    other.sync()
    assert other.get("still") == 1


def test_a_node_that_was_superseded_does_not_stop_its_successor(
    start: Start, tmp_path: Path
) -> None:
    """Not even where the peer was started again, and remembers no process of either."""
    # A port that the system gave away itself could be somebody else's by the second start.
    hub = start("hub", path=tmp_path / "hub", listen=f"127.0.0.1:{free_port()}")
    address = hub.address
    old = start("node-1", peers=[address])
    old.sync()
    new = start("node-1", peers=[address])
    settle(new, new)
    hub.close()
    hub = start("hub", path=tmp_path / "hub", listen=address)
    eventually(lambda: new.sync() == {address: "ok"})

    def is_refused() -> bool:
        old._mesh.sync(EVENTUALLY_S)
        return old.halted is not None

    eventually(is_refused)
    assert isinstance(old.halted, tm.NodeRemoved)
    new.upsert("visits", 3)
    assert new.sync() == {address: "ok"}
    assert hub.get("visits") == 3


def test_a_copy_of_a_folder_that_counts_as_well_is_found_out(start: Start, tmp_path: Path) -> None:
    """Both are the same life of the node, at the same turn: only their processes differ."""
    start("node-1", path=tmp_path / "one").close()
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    hub = start("hub")
    nodes = [start("node-1", path=tmp_path / at, peers=[hub.address]) for at in ("one", "copy")]
    for node in (*nodes, *nodes):
        node._mesh.sync(EVENTUALLY_S)
    (halted,) = [node for node in nodes if node.halted is not None]
    with pytest.raises(tm.DuplicateNode):
        halted.upsert("visits")


@pytest.mark.slow
def test_closing_does_not_wait_for_a_silent_peer(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = start("node-1", peers=[f"127.0.0.1:{silent.getsockname()[1]}"])
        one.upsert("visits")
        begun = time.monotonic()
        one.close()
        assert time.monotonic() - begun < 20, "its time limit is 30 s"


def test_all_is_saved_before_the_server_is_ended(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = start("node-1", path=tmp_path / "one", save_ms=NEVER_MS)
    one.upsert("visits", 3)
    saved = []

    def look(self: Server) -> None:
        with tm.Counters("node-1", path=tmp_path / "one") as again:
            saved.append(again.get("visits"))

    with monkeypatch.context() as patch:
        patch.setattr(Server, "close", look)
        one.close()
    assert saved == [3]
    two = start("node-2", listen=None, peers=[one.address])
    assert two.sync() == {one.address: "Unavailable"}, "who called has closed nothing"
    one._server.close()


def test_nodes_speak_over_ipv6(start: Start) -> None:
    try:
        one = start("node-1", listen="[::1]:0")
    except tm.InvalidInput:
        pytest.skip("this machine has no IPv6")
    assert one.address.startswith("[::1]:")
    two = start("node-2", listen=None, peers=[one.address])
    two.upsert("visits", 1)
    assert two.sync() == {one.address: "ok"}
    assert one.get("visits") == 1
    with pytest.raises(tm.InvalidInput, match="does not listen"):
        two.address  # noqa: B018


def test_a_removed_node_is_refused(start: Start, tmp_path: Path) -> None:
    one = start("node-1")
    two = start("node-2", path=tmp_path / "two", peers=[one.address])
    two.upsert("visits", 2)
    two.sync()
    one.remove_node("node-2")
    two.upsert("visits", 1)
    two.sync()
    assert isinstance(two.wait_halted(EVENTUALLY_S), tm.NodeRemoved)
    with pytest.raises(tm.NodeRemoved):
        two.upsert("visits", 1)
    assert one.get("visits") == 2
    empty = start("node-2", path=tmp_path / "new", peers=[one.address])
    empty.upsert("visits", 4)
    empty.sync()
    assert one.get("visits") == 6


def test_closing_ends_the_wait_for_a_node_to_stop(start: Start) -> None:
    one = start("node-1")
    found: list[tm.TidemillError | None] = []
    waiting = threading.Thread(target=lambda: found.append(one.wait_halted()))
    waiting.start()
    one.close()
    waiting.join(EVENTUALLY_S)
    assert found == [None]
    assert one.wait_halted() is None, "a node that was closed does not stop any more"


def test_garbage_is_refused_and_the_node_lives_on(start: Start) -> None:
    one = start("node-1")
    one.upsert("visits", 1)
    hello = pack(one._real.hello(), bytes(16))
    client = flight.FlightClient(f"grpc://{one.address}")
    damaged = bytearray(hello)
    damaged[-9] ^= 1
    for body in (b"", b"x" * 128, hello[:-1], bytes(damaged), hello + b"x"):
        with pytest.raises(flight.FlightServerError, match="a message is damaged, or none"):
            list(client.do_action(flight.Action("exchange", bytes(body))))
    for action, body in (("get", b"{"), ("get", b"[]"), ("get", b"{}"), ("no-such", b"")):
        with pytest.raises(flight.FlightServerError):
            list(client.do_action(flight.Action(action, body)))
    client.close()
    two = start("node-2", peers=[one.address])
    two.sync()
    assert two.get("visits") == 1


def test_a_message_that_is_too_large_is_told(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address])
    two.sync()
    two.upsert_many([f"counter-{number}" for number in range(1_000)], range(1_000))
    monkeypatch.setattr("tidemill.counters.replication.parcel.MESSAGE_BYTES_MAX", 1_000)
    assert two.sync() == {one.address: "TooLarge"}
    assert "more counters than one node can send" in caplog.text
    monkeypatch.undo()
    assert two.sync() == {one.address: "ok"}
    assert one.get("counter-999") == 999


def test_messages_survive_their_packing(start: Start) -> None:
    one = start("node-1")
    one.upsert_many([f"counter-{number}" for number in range(1_000)], range(1_000))
    two = start("node-2")
    message = one._real.answer(two._real.hello())
    found = unpack(pa.py_buffer(pack(message, b"t" * 16, two._real.replica)))
    assert (found.token, found.to) == (b"t" * 16, two._real.replica.incarnation)
    two._real.receive(found.message)
    assert two.all() == one.all()


def test_a_closed_node_says_so_and_frees_its_address(start: Start, tmp_path: Path) -> None:
    one = start("node-1", path=tmp_path / "one", listen=f"127.0.0.1:{free_port()}")
    address = one.address
    one.close()
    one.close()
    with pytest.raises(tm.Closed, match="node-1 were closed"):
        one.upsert("visits")
    with pytest.raises(tm.Closed):
        one.add_peer("127.0.0.1:9")
    again = start("node-1", path=tmp_path / "one", listen=address)
    with pytest.raises(tm.Locked, match="listens on"):
        tm.Counters("node-9", listen=again.address)


@pytest.mark.parametrize(
    "option", ["sync_ms", "buffer_max", "reconnect_ms", "timeout_ms", "save_ms", "gc_ms"]
)
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None])
def test_options_that_make_no_sense_are_refused(option: str, value: object) -> None:
    options: dict[str, Any] = {option: value}
    with pytest.raises(tm.InvalidInput, match=option):
        tm.Counters("node-1", **options)


@pytest.mark.parametrize("option", ["sync_ms", "reconnect_ms", "timeout_ms", "save_ms", "gc_ms"])
def test_nobody_waits_longer_than_threads_can(option: str) -> None:
    with pytest.raises(tm.InvalidInput, match=option):
        tm.Counters("node-1", **{option: COUNTER_INTERVAL_MS_MAX + 1})  # type: ignore[arg-type]
    with tm.Counters("node-1", **{option: COUNTER_INTERVAL_MS_MAX}) as counters:  # type: ignore[arg-type]
        assert counters.upsert("visits") == 1


@pytest.mark.parametrize("wait", ["x", -1, float("nan"), None])
def test_a_wait_that_is_none_is_refused(start: Start, wait: Any) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address])
    with pytest.raises(tm.InvalidInput, match="timeout_s"):
        two.sync(wait)
    assert two.sync(float("inf")) == {one.address: "ok"}


def test_a_peer_behind_is_seen_in_the_metrics(start: Start) -> None:
    one = start("node-1")
    two = start("node-2", peers=[one.address], sync_ms=NEVER_MS)
    two.sync()
    two.upsert("visits")
    two.save()
    eventually(lambda: two.metrics()["node-1"].lag_s > 0)
    two.sync()
    two.sync()
    eventually(lambda: two.metrics()["node-1"].lag_s == 0)
    found = two.metrics()["node-1"]
    assert found.rounds["ok"] >= 3
    assert found.is_connected
    assert sum(found.durations) == sum(found.rounds.values())


def test_what_expired_is_collected(start: Start) -> None:
    one = start("node-1", gc_ms=20)
    one.upsert("visits", 1)
    one.update_ttl("visits", datetime.now(UTC) - timedelta(seconds=1))
    eventually(lambda: one.all() == ({}, {}))
    assert one.upsert("visits", 3) == 3


@pytest.mark.slow
def test_a_forked_child_cannot_count_and_ends_as_usual() -> None:
    program = """
import os, sys
import tidemill as tm
one = tm.Counters("node-1", listen="127.0.0.1:0")
two = tm.Counters("node-2", listen="127.0.0.1:0", peers=[one.address], sync_ms=10)
two.upsert("visits", 1)
two.sync()
if not (child := os.fork()):
    try:
        two.upsert("visits", 1)
    except tm.Closed as error:
        print(error, flush=True)
        two.close()
        sys.exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
two.upsert("visits", 1)
two.sync()
print(status, one.get("visits"))
two.close(); one.close()
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(tm.__path__[0]).parent)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment
    )
    words = "the counters of node-2 were opened before os.fork(); open a new node\n"
    assert (done.stdout, done.returncode) == (words + "7 2\n", 0), done.stderr


def test_a_link_is_told_of_once(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    address = f"127.0.0.1:{free_port()}"
    one = start("node-1", peers=[address])
    with caplog.at_level(logging.WARNING):
        one.sync()
        one.sync()
    told = [record for record in caplog.records if "no exchange with" in record.getMessage()]
    assert len(told) == 1
