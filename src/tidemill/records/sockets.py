"""Sockets to a server of records, with TLS if its URL says so; then it must prove who it is."""

from __future__ import annotations

import io
import socket
import ssl
import time
from typing import Any

from tidemill.errors import InvalidInput, NoAccess
from tidemill.records.address import RecordAddress
from tidemill.records.links import Lost

_WITH_TLS = ("rediss", "etcds")


def connected(address: RecordAddress, member: int, what: str, within_s: float) -> socket.socket:
    """A socket to one of the hosts; `what` is the server's name in messages."""
    host, port = address.hosts[member]
    context = _context_of(address) if address.scheme in _WITH_TLS else None
    plain: socket.socket | None = None
    try:
        plain = socket.create_connection((host, port), timeout=within_s)
        # Questions are short, and wait for their answers.
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return plain if context is None else context.wrap_socket(plain, server_hostname=host)
    except BaseException as cause:
        if plain is not None:
            plain.close()
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise NoAccess(
                f"{what} at {host}:{port} does not prove with TLS who it is: {cause}"
            ) from cause
        if isinstance(cause, OSError):
            raise Lost(f"no connection to {what} at {host}:{port}: {cause}") from cause
        raise


class Arriving(io.RawIOBase):
    """What a socket receives up to `until_s`, by the monotonic clock. The timeout of a socket is
    that of each part of an answer, and a server that sends one part after the other would never
    come to it.
    """

    def __init__(self, source: socket.socket, until_s: float = 0.0) -> None:
        super().__init__()
        self._source = source
        self.until_s = until_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left_s = self.until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        self._source.settimeout(left_s)
        return self._source.recv_into(buffer)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What reads an answer over HTTP, as it asks a socket for that."""
        return io.BufferedReader(self)


def _context_of(address: RecordAddress) -> ssl.SSLContext:
    """What the server is checked against: the certificates of `ssl_ca`, else the system's."""
    try:
        context = ssl.create_default_context(cafile=address.ssl_ca)
        if address.ssl_cert is not None:
            context.load_cert_chain(address.ssl_cert, address.ssl_key)
    except OSError as cause:  # which errors of certificates are as well
        raise InvalidInput(
            f"ssl_ca, ssl_cert or ssl_key of {address.place} cannot be used: {cause}"
        ) from cause
    return context
