"""The counters of a node over HTTP, by a plain client."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import socket
import ssl
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from starlette.types import Receive, Scope, Send

import tidemill as tm
from tests.counters.replication.certificates import Authority
from tidemill.gateway.http import deadline
from tidemill.gateway.http.counters import counters_app
from tidemill.gateway.http.guard import Guard
from tidemill.gateway.http.serving import HttpServer
from tidemill.limits import HTTP_BODY_BYTES_MAX, HTTP_HEAD_BYTES_MAX

TOKEN = "a-token-of-the-tests"
LARGE = 32 << 20


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Service(NamedTuple):
    counters: tm.Counters
    address: str

    def ask(
        self, method: str, path: str, body: bytes | None = None, token: str | None = TOKEN
    ) -> Answer:
        host, _, port = self.address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()


@pytest.fixture(scope="module")
def shared() -> Iterator[Service]:
    with (
        tm.Counters("node-1") as counters,
        HttpServer(counters_app(counters, TOKEN), "127.0.0.1:0") as server,
    ):
        yield Service(counters, server.address)


@pytest.fixture
def service(shared: Service) -> Iterator[Service]:
    """One service for all tests, each of which begins without counters."""
    yield shared
    for names in shared.counters.all():
        for name in names:
            shared.counters.delete(name)


def test_counters_are_used_as_in_the_original(service: Service) -> None:
    assert service.ask("POST", "/upsert?name=visits&value=5").json == {"name": "visits", "value": 5}
    assert service.ask("POST", "/upsert?name=visits&value=-2").json["value"] == 3
    assert service.ask("GET", "/get?name=visits").json == {"name": "visits", "value": 3}
    assert service.ask("GET", "/all").json == {"live": {"visits": 3}, "expired": {}}
    assert service.ask("GET", "/parts?name=visits").json["parts"] == {"node-1": 3}
    assert service.ask("POST", "/update-ttl?name=visits&ttl=60").json == {"name": "visits"}
    assert service.counters.expiry("visits") is not None
    assert service.ask("POST", "/update-ttl?name=visits&ttl=-1").status == 200
    assert service.ask("GET", "/get?name=visits").status == 410
    assert service.ask("POST", "/upsert?name=visits&value=7").json["value"] == 7
    assert service.ask("POST", "/delete?name=visits").json == {"name": "visits"}
    gone = service.ask("GET", "/get?name=visits")
    assert (gone.status, gone.json["error"]["kind"]) == (404, "not-found")


def test_many_counters_go_in_one_request(service: Service) -> None:
    answer = service.ask("POST", "/upsert", b'{"a": 1, "b": -2}')
    assert answer.json == {"values": {"a": 1, "b": -2}}
    assert service.counters.all()[0] == {"a": 1, "b": -2}


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/get", None, 400),
        ("GET", "/get?name=bad%20name", None, 404),
        ("POST", "/upsert?name=a", None, 400),
        ("POST", "/upsert?name=a&value=x", None, 400),
        ("POST", "/upsert?name=a&value=9223372036854775808", None, 400),
        ("POST", "/upsert?name=a&value=" + "9" * 5_000, None, 400),
        ("POST", "/upsert", b"{", 400),
        ("POST", "/upsert", b"[" * 100_000, 400),
        ("POST", "/upsert", b'{"a": 1.5}', 400),
        ("POST", "/upsert", b'{"a": true}', 400),
        ("POST", "/upsert", b"{}", 400),
        ("POST", "/upsert", b'{"good": 1, "bad name": 1}', 400),
        ("POST", "/upsert", b'{"a": 1, "a": 5}', 400),
        ("POST", "/upsert?name=a&value=1", b'{"b": 5}', 400),
        ("POST", "/update-ttl?name=a&ttl=999999999999", None, 400),
        ("POST", "/delete?name=missing", None, 404),
        ("GET", "/upsert?name=a&value=1", None, 405),
        ("GET", "/no-such", None, 404),
    ],
)
def test_what_makes_no_sense_is_refused_and_leaves_no_trace(
    service: Service, method: str, path: str, body: bytes | None, status: int
) -> None:
    answer = service.ask(method, path, body)
    assert answer.status == status, answer
    assert answer.json["error"]["message"]
    assert service.counters.all() == ({}, {})


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/upsert"), ("PUT", "/get"), ("GET", "/nothing"), ("GET", "/")]
)
def test_what_is_not_there_is_named(service: Service, method: str, path: str) -> None:
    message = service.ask(method, f"{path}?name=a").json["error"]["message"]
    assert message == f"there is no {method} {path} here"
    assert len(service.ask("GET", f"/{'x' * 2_000}").json["error"]["message"]) < 200


def test_overflow_is_an_error(service: Service) -> None:
    service.counters.upsert("a", 2**63 - 1)
    assert service.ask("POST", "/upsert?name=a&value=1").status == 400
    assert service.counters.get("a") == 2**63 - 1


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", TOKEN[:-1]])
def test_nothing_but_health_without_the_token(service: Service, token: str | None) -> None:
    for method, path in (("GET", "/all"), ("GET", "/metrics"), ("POST", "/upsert?name=a&value=1")):
        answer = service.ask(method, path, token=token)
        assert answer.status == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json["error"]["kind"] == "no-access"
    assert service.counters.all() == ({}, {})
    assert service.ask("GET", "/health", token=token).json == {"status": "ok", "node": "node-1"}


def test_a_secret_that_no_header_can_say_is_no_token() -> None:
    with tm.Counters("node-1") as counters:
        for bad in ("short", TOKEN + "\n", f" {TOKEN}", TOKEN + "\udcff"):
            with pytest.raises(tm.InvalidInput, match="a token is a line of text") as caught:
                counters_app(counters, bad)
            assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_every_answer_has_the_headers_that_browsers_heed(service: Service) -> None:
    for path, token in (("/all", TOKEN), ("/all", None), ("/no-such", TOKEN), ("/health", None)):
        headers = service.ask("GET", path, token=token).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["cache-control"] == "no-store"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "access-control-allow-origin" not in headers
        assert "server" not in headers


def test_a_body_is_bounded_whatever_it_declares(service: Service) -> None:
    declared = service.ask("POST", "/upsert", bytes(HTTP_BODY_BYTES_MAX + 1))
    assert (declared.status, declared.json["error"]["kind"]) == (413, "too-large")
    host, _, port = service.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall(
            b"POST /upsert HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
            b"Authorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
        )
        try:
            for _ in range(2 + HTTP_BODY_BYTES_MAX // 65_536):
                line.sendall(b"10000\r\n" + bytes(65_536) + b"\r\n")
        except OSError:
            pass  # It may have hung up by now.
        with http.client.HTTPResponse(line) as answer:
            answer.begin()
            assert (answer.status, json.loads(answer.read())) == (413, declared.json)
    assert service.ask("GET", "/health").status == 200


def test_who_leaves_in_the_middle_of_a_body_is_no_fault_of_ours(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with (
        tm.Counters("node-1") as counters,
        HttpServer(counters_app(counters, TOKEN), "127.0.0.1:0") as server,
    ):
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(
                b"POST /upsert HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n"
                b"Expect: 100-continue\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n\r\n"
            )
            assert b" 100 " in line.recv(4_096), "the body is waited for"
    assert [one.message for one in caplog.records if one.levelname == "ERROR"] == []


def test_a_head_is_bounded_and_garbage_is_no_request(service: Service) -> None:
    host, _, port = service.address.rpartition(":")
    for garbage in (b"\x00\xff" * 100, b"GET /" + b"a" * (2 * HTTP_HEAD_BYTES_MAX)):
        with socket.create_connection((host, int(port)), timeout=30) as line:
            line.sendall(garbage + b"\r\n\r\n")
            assert line.recv(4_096).startswith(b"HTTP/1.1 400")
    assert service.ask("GET", "/health").status == 200


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET /health HTTP/1.1\r\nHost: x\r\n",
        b"POST /upsert HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{",
        b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /hea",
    ],
    ids=["silent", "head", "body", "next"],
)
def test_who_never_ends_a_request_is_cut_off(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    """Or a few hundred connections would keep everybody else out."""
    with (
        tm.Counters("node-1") as counters,
        HttpServer(counters_app(counters, TOKEN), "127.0.0.1:0") as server,
    ):
        host, _, port = server.address.rpartition(":")
        with monkeypatch.context() as patch:
            patch.setattr(deadline, "HTTP_ARRIVAL_S_MAX", 0.3)
            with socket.create_connection((host, int(port)), timeout=30) as line:
                try:
                    line.sendall(begun)
                    while line.recv(4_096):
                        pass
                except ConnectionError:
                    pass  # It says so in this way as well.
        # A busy machine may take longer than that, also for a request that ends.
        assert Service(counters, server.address).ask("GET", "/health").status == 200


def test_no_more_connections_are_held_than_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each takes a file of the process, which its counters need as well."""
    monkeypatch.setattr(deadline, "HTTP_CONNECTIONS_MAX", 4)
    with tm.Counters("node-1") as counters, ExitStack() as stack:
        server = stack.enter_context(HttpServer(counters_app(counters, TOKEN), "127.0.0.1:0"))
        host, _, port = server.address.rpartition(":")
        lines = [
            stack.enter_context(socket.create_connection((host, int(port)), timeout=5))
            for _ in range(6)
        ]
        for line in lines[4:]:
            with suppress(ConnectionResetError):
                assert line.recv(1) == b""
        lines[0].sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert lines[0].recv(4_096).startswith(b"HTTP/1.1 200")


async def large(scope: Scope, _: Receive, send: Send) -> None:
    """An answer that no buffers between here and there have room for."""
    await send({"type": "http.response.start", "status": 200})
    await send({"type": "http.response.body", "body": bytes(LARGE)})


@pytest.mark.parametrize(
    ("more", "is_secure"),
    [(b"", False), (b"Connection: close\r\n", False), (b"", True)],
    ids=["kept", "closed", "with TLS"],
)
def test_who_does_not_take_the_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: bytes, is_secure: bool
) -> None:
    """For the same reason; small answers without end are as good as a large one."""
    monkeypatch.setattr(deadline, "HTTP_ARRIVAL_S_MAX", 0.3)
    tls = Authority(tmp_path).issue("node-1") if is_secure else None
    with HttpServer(Guard(large, token=None), "127.0.0.1:0", tls=tls) as server:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as plain:
            line = plain if tls is None else _trusting(tls).wrap_socket(plain, server_hostname=host)
            line.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n" + more + b"\r\n")
            assert line.recv(1)
            connections = server._server.server_state.connections
            deadline_s = time.monotonic() + 30
            while connections:
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
            line.close()


@pytest.mark.parametrize("is_secure", [False, True], ids=["plain", "with TLS"])
def test_who_takes_a_large_answer_slowly_gets_all_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_secure: bool
) -> None:
    monkeypatch.setattr(deadline, "HTTP_ARRIVAL_S_MAX", 1.0)
    tls = Authority(tmp_path).issue("node-1") if is_secure else None
    with HttpServer(Guard(large, token=None), "127.0.0.1:0", tls=tls) as server:
        host, _, port = server.address.rpartition(":")
        connection = http.client.HTTPConnection(host, int(port), timeout=30)
        if tls is not None:
            connection = http.client.HTTPSConnection(
                host, int(port), context=_trusting(tls), timeout=30
            )
        connection.request("GET", "/")
        answer, taken = connection.getresponse(), 0
        while piece := answer.read(LARGE // 20):
            taken += len(piece)
            time.sleep(0.1)
        connection.close()
    assert taken == LARGE


def _trusting(tls: tm.Tls) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=tls.authority)


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "HTTP_ARRIVAL_S_MAX", 0.2)
    arrived: list[Scope] = []

    async def answer(scope: Scope, _: Receive, send: Send) -> None:
        arrived.append(scope)
        await asyncio.sleep(1.0)
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"at last"})

    said = b""
    with HttpServer(answer, "127.0.0.1:0") as server:
        host, _, port = server.address.rpartition(":")
        while not arrived:
            connection = http.client.HTTPConnection(host, int(port), timeout=30)
            # On a busy machine a request may come too late itself: then it is sent again.
            with suppress(ConnectionError):
                connection.request("GET", "/")
                said = connection.getresponse().read()
            connection.close()
    assert said == b"at last"
    assert len(arrived) == 1


def test_metrics_are_what_prometheus_reads() -> None:
    with (
        tm.Counters("node-1", listen="127.0.0.1:0") as one,
        tm.Counters("node-2", peers=[one.address], sync_ms=3_600_000) as two,
        HttpServer(counters_app(two, TOKEN), "127.0.0.1:0") as server,
    ):
        two.upsert("visits", 1)
        two.sync()
        answer = Service(two, server.address).ask("GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    sample = re.compile(r'[a-z_]+(\{([a-z]+="[^"]*",?)+\})? [-+0-9.e]+')
    samples = {}
    for line in answer.text.splitlines():
        if not line.startswith("#"):
            assert sample.fullmatch(line), line
            name, _, value = line.rpartition(" ")
            samples[name] = float(value)
    assert samples['tidemill_counters_sent_rows_total{peer="node-1"}'] == 1
    assert samples['tidemill_counters_exchanges_total{peer="node-1",code="ok"}'] >= 1
    count = samples['tidemill_counters_exchange_seconds_count{peer="node-1"}']
    assert samples['tidemill_counters_exchange_seconds_bucket{peer="node-1",le="+Inf"}'] == count
    assert samples['tidemill_counters_connected{peer="node-1"}'] == 1
    assert samples["tidemill_counters_live"] == 1


def test_a_halted_node_says_so() -> None:
    with (
        tm.Counters("node-1") as counters,
        HttpServer(counters_app(counters, None), "127.0.0.1:0") as server,
    ):
        counters._halt(tm.DuplicateNode("two live nodes are called node-1"))
        service = Service(counters, server.address)
        assert service.ask("GET", "/health", token=None).status == 503
        answer = service.ask("GET", "/get?name=a", token=None)
        assert (answer.status, answer.json["error"]["kind"]) == (503, "fenced")


def test_beyond_this_machine_http_is_encrypted(tmp_path: Any) -> None:
    with tm.Counters("node-1") as counters:
        app = counters_app(counters, TOKEN)
        with pytest.raises(tm.InvalidInput, match="show its token"):
            HttpServer(app, "0.0.0.0:0")
        authority = Authority(tmp_path)
        with HttpServer(app, "127.0.0.1:0", tls=authority.issue("node-1")) as server:
            context = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
            host, _, port = server.address.rpartition(":")
            connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=30)
            connection.request("GET", "/health")
            assert connection.getresponse().status == 200
            connection.close()
        with pytest.raises(tm.InvalidInput, match="at least 16 bytes"):
            counters_app(counters, "short")


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with (
        tm.Counters("node-1") as counters,
        pytest.raises(tm.MissingExtra, match=r"tidemill\[http\]"),
    ):
        HttpServer(counters_app(counters, TOKEN), "127.0.0.1:0")
