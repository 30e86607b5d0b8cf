"""One connection to etcd, in the JSON over HTTP that it has since version 3.4; no package needed.

Bytes travel as base64, and 64-bit numbers as text. Each request is answered before the next is
sent, and the connection is kept.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
from typing import Any

from tidemill.errors import DiskFull, NoAccess, StorageFailed, TidemillError, TooLarge
from tidemill.log.sql.sockets import is_readable
from tidemill.records.address import RecordAddress
from tidemill.records.links import Busy, Lost
from tidemill.records.sockets import Arriving, connected

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
            if self.call("/v3/maintenance/status", {}, within_s).get("leader", "0") == "0":
                raise Lost(f"etcd at {self._where} has no leader")
            if address.user:
                login = {"name": address.user, "password": address.password}
                self._token = str(self.call("/v3/auth/authenticate", login, within_s)["token"])
        except BaseException:
            self.close()
            raise

    @property
    def is_stale(self) -> bool:
        return not self._is_whole or is_readable(self._socket.fileno())

    def call(self, path: str, asked: dict[str, Any], within_s: float) -> dict[str, Any]:
        """Ask, and wait for the answer."""
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
                said = json.loads(answer.read())
        except (OSError, http.client.HTTPException, ValueError) as cause:
            raise Lost(f"etcd at {self._where} did not answer: {cause!r}") from cause
        self._is_whole = not answer.will_close
        if not isinstance(said, dict):
            raise Lost(f"etcd at {self._where} answered what no etcd does")
        if answer.status != http.client.OK:
            raise self._refusal(answer.status, said)
        return said

    def close(self) -> None:
        self._is_whole = False
        self._socket.close()

    def _refusal(self, status: int, said: dict[str, Any]) -> Exception:
        message = str(said.get("message") or said.get("error") or f"HTTP status {status}")
        text = f"etcd at {self._where} refuses: {message}"
        if any(words in message for words in _DID_NOTHING):
            return Busy(text)
        for words, (kind, advice) in _REFUSED.items():
            if words in message:
                return kind(text + advice)
        if said.get("code") in _UNCERTAIN or status >= http.client.INTERNAL_SERVER_ERROR:
            return Lost(text)
        return StorageFailed(text)


def packed(data: bytes) -> str:
    """Bytes as etcd's JSON has them.

    >>> unpacked(packed(b"\\x00\\xff"))
    b'\\x00\\xff'
    """
    return base64.b64encode(data).decode()


def unpacked(text: str) -> bytes:
    """The bytes of what `packed` gave."""
    return base64.b64decode(text, validate=True)
