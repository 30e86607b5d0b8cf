"""A proxy in front of an HTTP server that does what networks and servers do at their worst.

Requests are counted from 0 on. A fault hits one of them, or every one from there on:

- "500": the server says that it failed, and never saw the request
- "cut": the server did what it was asked, and the connection breaks before it answers
- "hang": the same, and nothing more is heard of it
- "stale": lists of objects are those of the first time that each was asked for; they are no faults
  of one request, but of all from there on
"""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, Self

Kind = Literal["500", "cut", "hang", "stale"]
_OF_THE_CONNECTION = {"connection", "transfer-encoding", "keep-alive"}


@dataclass(frozen=True)
class HttpFault:
    """What goes wrong, and when."""

    at: int
    kind: Kind
    stays: bool = False  # every request from there on

    def hits(self, number: int) -> bool:
        return number >= self.at if self.stays else number == self.at


class HttpProxy:
    """Passes requests on to a port of this machine."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._lock = threading.Lock()
        self._fault: HttpFault | None = None
        self._closing = threading.Event()
        self._lists: dict[str, bytes] = {}  # by what was asked for, as they were the first time
        self.requests: list[str] = []  # since `arm`
        self.fired = 0  # how many requests the fault has hit
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def arm(self, fault: HttpFault | None) -> None:
        """Count from 0 on, with this fault ahead."""
        with self._lock:
            self._fault, self.requests, self.fired = fault, [], 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def pass_on(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("content-length", 0)))
        with self._lock:
            fault = self._fault
            is_hit = fault is not None and fault.hits(len(self.requests))
            self.requests.append(f"{handler.command} {handler.path}")
            self.fired += is_hit
        if is_hit and fault is not None and fault.kind == "500":
            handler.send_error(500)
            return
        status, headers, answer = self._ask(handler, body)
        if "list-type=2" in handler.path:
            with self._lock:
                first = self._lists.setdefault(handler.path, answer)
            if is_hit and fault is not None and fault.kind == "stale":
                headers = [
                    (name, str(len(first)) if name.lower() == "content-length" else value)
                    for name, value in headers
                ]
                answer = first
        if is_hit and fault is not None and fault.kind != "stale":
            if fault.kind == "hang":
                self._closing.wait(5)
            handler.close_connection = True
            handler.connection.close()
            return
        handler.send_response_only(status)
        for name, value in headers:
            if name.lower() not in _OF_THE_CONNECTION:
                handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(answer)

    def _ask(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._target, timeout=30)
        try:
            # The name of the host is signed, so that it is passed on as well.
            connection.request(handler.command, handler.path, body, dict(handler.headers))
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: HttpProxy

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (OSError, ValueError):
            self.close_connection = True  # The client or a fault has closed it.

    def do_GET(self) -> None:
        self.owner.pass_on(self)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET  # noqa: N815

    def log_message(self, *_: object) -> None:
        """Says nothing: what matters is counted."""
