"""One connection to etcd, in the JSON over HTTP that it has since version 3.4; no package needed.

Bytes travel as base64, and 64-bit numbers as text. Each request is answered before the next is
sent, and the connection is kept.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from tidemill.errors import DiskFull, NoAccess, StorageFailed, TidemillError, TooLarge
from tidemill.limits import ETCD_RECORD_BYTES_MAX, MIB
from tidemill.log.sql.sockets import is_readable
from tidemill.records.address import RecordAddress
from tidemill.records.links import GARBLED, Busy, Lost
from tidemill.records.sockets import Arriving, connected
from tidemill.shown import printable

# What etcd says when it did nothing, and may if asked again. The others that a client is to repeat
# say nothing about what became of a write.
_DID_NOTHING = ("too many requests", "invalid auth token", "revision of auth store is old")
_REFUSED: dict[str, tuple[type[TidemillError], str]] = {
    "request is too large": (TooLarge, "; raise --max-request-bytes of etcd"),
    "received message larger than max": (TooLarge, "; raise --max-request-bytes of etcd"),
    "database space exceeded": (DiskFull, "; compact and defragment etcd, or raise its quota"),
    "permission denied": (NoAccess, ""),
    "authentication failed": (NoAccess, ""),
    "user name is empty": (NoAccess, ": etcd asks who you are, so name a user in the URL"),
    "user name not found": (NoAccess, ""),
}
# gRPC's numbers for: cancelled, unknown, deadline exceeded, aborted, internal, unavailable.
_UNCERTAIN = {1, 2, 4, 10, 13, 14}
RECORDS_MAX = 100  # in one request; etcd takes 128 unless it is told otherwise
_ANSWER_BYTES_MAX = 2 * RECORDS_MAX * ETCD_RECORD_BYTES_MAX  # base64 makes four bytes of three
_PIECE_BYTES = MIB  # of an answer, for which room is made before it is there

T = TypeVar("T")


class EtcdLink:
    """A connection to one member of the cluster."""

    def __init__(self, address: RecordAddress, member: int, within_s: float) -> None:
        self.member = member
        host, port = address.hosts[member]
        self._where = f"{host}:{port}"
        self._token = ""
        self._is_whole = True
        self._socket = connected(address, member, "etcd", within_s)
        try:
            # Something answers there, and knows a leader, before anything is written to it.
            leader = self.call("/v3/maintenance/status", {}, within_s, _leader)
            if not leader:
                raise Lost(f"etcd at {self._where} has no leader")
            if address.user:
                login = {"name": address.user, "password": address.password}
                self._token = self.call("/v3/auth/authenticate", login, within_s, _token)
        except BaseException:
            self.close()
            raise

    @property
    def is_stale(self) -> bool:
        return not self._is_whole or is_readable(self._socket.fileno())

    def call(
        self,
        path: str,
        asked: dict[str, Any],
        within_s: float,
        understand: Callable[[dict[str, Any]], T],
    ) -> T:
        """Ask, wait for the answer, and make of it what it means."""
        body = json.dumps(asked).encode()
        token = f"Authorization: {self._token}\r\n" if self._token else ""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: {self._where}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{token}\r\n"
        )
        self._is_whole = False
        try:
            arriving: Any = Arriving(self._socket, time.monotonic() + within_s)
            self._socket.settimeout(within_s)
            self._socket.sendall(head.encode() + body)
            answer = http.client.HTTPResponse(arriving, method="POST")
            with answer:
                answer.begin()
                said = json.loads(_body(answer))
        except (OSError, http.client.HTTPException, ValueError, RecursionError) as cause:
            raise Lost(f"etcd at {self._where} did not answer: {cause!r}") from cause
        self._is_whole = not answer.will_close
        if not isinstance(said, dict):
            raise Lost(f"etcd at {self._where} answered what no etcd does")
        if answer.status != http.client.OK:
            raise self._refusal(answer.status, said)
        try:
            return understand(said)
        except GARBLED as cause:
            raise Lost(f"etcd at {self._where} answered what no etcd does: {cause!r}") from cause

    def close(self) -> None:
        self._is_whole = False
        self._socket.close()

    def _refusal(self, status: int, said: dict[str, Any]) -> Exception:
        message = str(said.get("message") or said.get("error") or f"HTTP status {status}")
        text = f"etcd at {self._where} refuses: {printable(message)}"
        if any(words in message for words in _DID_NOTHING):
            return Busy(text)
        for words, (kind, advice) in _REFUSED.items():
            if words in message:
                return kind(text + advice)
        code = said.get("code")
        if (
            isinstance(code, int) and code in _UNCERTAIN
        ) or status >= http.client.INTERNAL_SERVER_ERROR:
            return Lost(text)
        return StorageFailed(text)


def _body(answer: http.client.HTTPResponse) -> bytes:
    """What follows the head of an answer, as it comes: no room is made on its word."""
    pieces: list[bytes] = []
    left = _ANSWER_BYTES_MAX
    while piece := answer.read(_PIECE_BYTES):
        pieces.append(piece)
        left -= len(piece)
        if left < 0:
            raise ValueError(f"an answer has more than {_ANSWER_BYTES_MAX} bytes")
    return b"".join(pieces)


def _leader(said: dict[str, Any]) -> int:
    return int(said.get("leader", 0))


def _token(said: dict[str, Any]) -> str:
    token = said["token"]
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise ValueError("what should be a token is none")
    return token


def packed(data: bytes) -> str:
    """Bytes as etcd's JSON has them.

    >>> unpacked(packed(b"\\x00\\xff"))
    b'\\x00\\xff'
    """
    return base64.b64encode(data).decode()


def unpacked(text: str) -> bytes:
    """The bytes of what `packed` gave."""
    return base64.b64decode(text, validate=True)
