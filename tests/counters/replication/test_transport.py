"""Calls between nodes: errors, bounds, certificates, garbage, and what a fork leaves of them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

import tidemill as tm
from tests.counters.replication.certificates import Authority
from tests.services.server import free_port
from tidemill.counters.replication import caller as caller_module
from tidemill.counters.replication import server as server_module
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.caller import Caller
from tidemill.counters.replication.remote import RemoteCounters
from tidemill.counters.replication.server import Call, Server
from tidemill.limits import CALLS_MAX
from tidemill.shown import printable, shown

ROOT = Path(__file__).resolve().parents[3]
ANY = Address.of("127.0.0.1:0")
BYTES_MAX = 1_000_000  # in place of a limit that would take a quarter of a gigabyte to reach


def answer(call: Call) -> Iterator[bytes | pa.Buffer]:
    """Says what was said, and by whom."""
    if call.action == "refuse":
        raise tm.InvalidInput("that is never accepted")
    if call.action == "refuse at length":
        raise tm.InvalidInput(call.body.to_pybytes().decode(errors="surrogatepass"))
    if call.action == "fail":
        raise ZeroDivisionError("secret words")
    if call.action == "flood":
        yield b"x" * (2 * BYTES_MAX)
    yield call.body
    yield (call.caller or "").encode()


def call(
    address: Address, action: str = "echo", body: bytes = b"", tls: tm.Tls | None = None
) -> list[bytes]:
    with Caller(address, None if tls is None else tls.read(), timeout_s=10) as caller:
        return [part.to_pybytes() for part in caller.call(action, body)]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with Server(ANY, None, answer) as made:
        yield made


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secure(authority: Authority) -> Iterator[Server]:
    with Server(ANY, authority.issue("node-1").read(), answer) as made:
        yield made


def test_an_answer_is_what_was_said(server: Server) -> None:
    assert call(server.address, body=b"hello") == [b"hello", b""]


def test_an_error_of_ours_arrives_as_what_it_is(server: Server) -> None:
    with pytest.raises(tm.InvalidInput, match="that is never accepted"):
        call(server.address, "refuse")


@pytest.mark.parametrize("letter", ["x", "é", "🌊", "\0", "\n", '"', "\ud800"])
def test_an_error_of_ours_arrives_however_long_it_is(server: Server, letter: str) -> None:
    for count in (2, 200, 1_000, 4_000, 1_000_000):
        with pytest.raises(tm.InvalidInput) as caught:
            call(
                server.address, "refuse at length", (letter * count).encode(errors="surrogatepass")
            )
        assert set(str(caught.value)) == set(printable(letter))


def test_a_fault_arrives_without_its_traceback(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(tm.Unavailable, match="a fault of ours") as caught:
        call(server.address, "fail")
    assert "secret words" not in str(caught.value)
    assert "secret words" in caplog.text


def test_nobody_there_is_unavailable() -> None:
    with pytest.raises(tm.Unavailable, match="does not answer"):
        call(Address("127.0.0.1", free_port()))


def test_somebody_else_there_is_unavailable() -> None:
    class Other(flight.FlightServerBase):  # type: ignore[misc]
        pass

    with Other("grpc://127.0.0.1:0") as other, pytest.raises(tm.Unavailable, match="is it a node"):
        call(Address("127.0.0.1", other.port))


class Garbler(flight.FlightServerBase):  # type: ignore[misc]
    """Some other service, which answers whatever is asked with the same again and again."""

    def __init__(self, body: bytes, times: int) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self.body, self.times, self.sent = body, times, 0
        self.has_ended = threading.Event()

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        try:
            while self.sent < self.times:
                self.sent += 1
                yield flight.Result(pa.py_buffer(self.body))
        finally:
            self.has_ended.set()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"7",
        b'{"value": "x", "live": 1, "expired": 2, "parts": [1], "nodes": {"a": 1}}',
        b'{"value": 1e999, "live": {"x": 1.5}, "expired": {}, "parts": {"x": null}, "nodes": [{}]}',
        b"[" * 100_000,
        b"\xff",
        b"9" * 5_000,
        b'{"value": "", "live": {"\\u001b[2J": 1}, "expired": {}, "parts": {"\\n": 1}, '
        b'"nodes": [{"node": "\\r", "is_removed": false, "behind": 0}]}',
    ],
)
def test_an_answer_that_is_none_of_a_node_is_said_to_be_none(body: bytes) -> None:
    with Garbler(body, 1) as other, RemoteCounters(f"127.0.0.1:{other.port}") as remote:
        for action in (
            lambda: remote.get("x"),
            lambda: remote.upsert("x"),
            remote.all,
            lambda: remote.parts("x"),
            remote.nodes,
        ):
            other.sent = 0
            with pytest.raises(tm.BadMessage, match="no answer of a node"):
                action()


@pytest.mark.parametrize("size", [0, BYTES_MAX // 2 + 1])
def test_an_answer_that_does_not_end_is_broken_off(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caller_module, "MESSAGE_BYTES_MAX", BYTES_MAX)
    with Garbler(bytes(size), 10_000_000) as other:
        with pytest.raises(tm.BadMessage, match="more than an answer of a node has"):
            call(Address("127.0.0.1", other.port))
        assert other.has_ended.wait(30)
        assert other.sent < other.times


def test_what_is_too_large_is_refused_at_either_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (caller_module, server_module):
        monkeypatch.setattr(module, "MESSAGE_BYTES_MAX", BYTES_MAX)
    with pytest.raises(tm.TooLarge, match="at most 1,000,000 bytes"):
        call(server.address, body=bytes(BYTES_MAX + 1))
    client = flight.FlightClient(f"grpc://{server.address}")
    with pytest.raises(flight.FlightServerError, match="at most 1,000,000 bytes"):
        list(client.do_action(flight.Action("echo", bytes(BYTES_MAX + 1))))
    client.close()
    with pytest.raises(tm.TidemillError, match="more than is accepted"):
        call(server.address, "flood")
    assert call(server.address, body=b"lives on")[0] == b"lives on"


def test_garbage_on_the_port_harms_nobody(server: Server, secure: Server) -> None:
    for one in (server, secure):
        for garbage in (os.urandom(5_000), b"GET / HTTP/1.1\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n"):
            with socket.create_connection((one.address.host, one.address.port)) as line:
                line.sendall(garbage)
                line.shutdown(socket.SHUT_WR)
                while line.recv(4_096):
                    pass
    assert call(server.address, body=b"lives on")[0] == b"lives on"


def test_a_certificate_tells_who_calls(secure: Server, authority: Authority) -> None:
    assert call(secure.address, tls=authority.issue("node-2"))[1] == b"node-2"


def test_a_foreign_certificate_is_refused_by_both(
    secure: Server, authority: Authority, tmp_path: Path
) -> None:
    foreign = Authority(tmp_path).issue("node-2")
    with pytest.raises(tm.NoAccess, match="check its certificate"):
        call(secure.address, tls=foreign)
    ours = authority.issue("node-2")
    knows_us = tm.Tls(certificate=foreign.certificate, key=foreign.key, authority=ours.authority)
    with pytest.raises(tm.Unavailable, match="may not accept this node's certificate"):
        call(secure.address, tls=knows_us)
    with pytest.raises(tm.Unavailable):
        call(secure.address)
    assert call(secure.address, tls=ours, body=b"lives on")[0] == b"lives on"


def test_an_address_that_is_taken_is_told(server: Server) -> None:
    with pytest.raises(tm.Locked, match=r"listens on 127\.0\.0\.1"):
        Server(server.address, None, answer)
    with pytest.raises(tm.InvalidInput, match=r"cannot listen on 192\.0\.2\.1"):
        Server(Address("192.0.2.1", 0), None, answer)


def test_a_key_of_another_certificate_is_told(authority: Authority) -> None:
    one, two = authority.issue("node-1"), authority.issue("node-2")
    mixed = tm.Tls(certificate=one.certificate, key=two.key, authority=one.authority)
    with pytest.raises(tm.InvalidInput, match="belong together"):
        Server(ANY, mixed.read(), answer)


@pytest.mark.parametrize(
    ("file", "words"), [("missing.pem", "there is no file"), ("empty.pem", "holds no certificate")]
)
def test_files_that_are_none_are_told(tmp_path: Path, file: str, words: str) -> None:
    (tmp_path / "empty.pem").write_bytes(b"")
    with pytest.raises(tm.InvalidInput, match=words):
        tm.Tls(certificate=tmp_path / file, key="no.key", authority="ca.pem").read()


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":1", "host:70000", "a b:1", "::1:1", 7, 10**5_000, None],
    ids=shown,
)
def test_what_is_no_address_is_told(text: object) -> None:
    with pytest.raises(tm.InvalidInput, match="is no address"):
        Address.of(text)


@pytest.mark.slow
def test_a_forked_child_ends_as_usual_and_its_parent_goes_on() -> None:
    program = """
import os, sys
from tests.counters.replication.test_transport import ANY, answer
from tidemill.counters.replication.caller import Caller
from tidemill.counters.replication.server import Server
server = Server(ANY, None, answer)
caller = Caller(server.address, None, timeout_s=10)
caller.call("echo", b"")
if not (child := os.fork()):
    del server, caller
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), len(caller.call("echo", b"")))
caller.close(); server.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert (done.stdout, done.returncode) == ("7 2\n", 0), done.stderr


def test_closing_does_not_wait_for_clients_that_do_not_move(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    moved = threading.Event()
    shutdown = flight.FlightServerBase.shutdown

    def waiting(self: flight.FlightServerBase) -> None:
        moved.wait(60)
        shutdown(self)

    monkeypatch.setattr(server_module._Flight, "shutdown", waiting)
    monkeypatch.setattr(server_module, "_CLOSE_S_MAX", 0.01)
    server = Server(ANY, None, answer)
    server.close()
    server.close()
    assert server._ending is not None
    assert server._ending.is_alive()
    moved.set()
    server._ending.join(60)
    assert not server._ending.is_alive()


@pytest.mark.slow
def test_a_process_ends_and_frees_its_port_though_a_client_was_stopped() -> None:
    program = """
import os, signal, subprocess, sys
from tests.counters.replication.test_transport import Address, answer, free_port
from tidemill.counters.replication.server import Server
server = Server(Address("127.0.0.1", free_port()), None, answer)
call = "import sys; from tests.counters.replication.test_transport import *; "
call += "caller = Caller(Address.of(sys.argv[1]), None, timeout_s=30); "
call += "caller.call('echo', b''); print('up', flush=True); input()"
pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
client = subprocess.Popen([sys.executable, "-c", call, str(server.address)], **pipes)
client.stdout.readline()
os.kill(client.pid, signal.SIGSTOP)
os.waitpid(client.pid, os.WUNTRACED)
server.close()
is_left = server._ending.is_alive()
Server(server.address, None, answer).close()
os.kill(client.pid, signal.SIGKILL)
print(is_left)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


def test_no_more_calls_are_taken_than_there_is_room_for(server: Server) -> None:
    assert CALLS_MAX > 1
    room = server._flight._room
    taken = [room.acquire(blocking=False) for _ in range(CALLS_MAX)]
    assert all(taken)
    with pytest.raises(tm.Unavailable, match="try again"):
        call(server.address)
    for _ in taken:
        room.release()
    assert call(server.address, body=b"lives on")[0] == b"lives on"


@pytest.mark.parametrize(
    "options", [{"listen": "127.0.0.1:0"}, {"peers": ["127.0.0.1:7802"]}, {"peers": list}]
)
def test_a_pyarrow_without_flight_is_told_before_there_is_a_node(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(pa, "flight", raising=False)
    monkeypatch.setitem(sys.modules, "pyarrow.flight", None)
    folder = tmp_path / "node"
    with pytest.raises(tm.MissingExtra, match="Arrow Flight, which this build of pyarrow lacks"):
        tm.Counters("node-1", path=folder, **options)
    assert not folder.exists()
    # One that talks to nobody does without.
    with tm.Counters("node-1", path=folder) as counters:
        assert counters.upsert("visits") == 1
