"""Calls to one node, over a connection that is kept."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.closing import Closing
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.arrow_flight import load_flight
from tidemill.counters.replication.forking import outlives_fork
from tidemill.counters.replication.refusals import typed
from tidemill.counters.replication.tls import Credentials
from tidemill.errors import BadMessage, TooLarge
from tidemill.limits import ANSWER_PARTS_MAX, MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from pyarrow import flight

_ENVELOPE_BYTES = 64 * 1024  # what gRPC and Flight put around a message


class Caller(Closing):
    """A client of one node. It connects at the first call, and again after `reconnect`."""

    def __init__(
        self, address: Address, credentials: Credentials | None, *, timeout_s: float
    ) -> None:
        self.address = address
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._client: flight.FlightClient | None = None

    def call(self, action: str, body: bytes | pa.Buffer) -> list[pa.Buffer]:
        """The answer of the node; an error of ours otherwise."""
        flight = load_flight()
        if len(body) > MESSAGE_BYTES_MAX:
            raise TooLarge(f"a message has at most {MESSAGE_BYTES_MAX:,} bytes, not {len(body):,}")
        options = flight.FlightCallOptions(timeout=self._timeout_s)
        try:
            results = self._connected().do_action(flight.Action(action, body), options)
            return self._taken(results)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise typed(error, self.address, is_secure=self._credentials is not None) from error

    def _taken(self, results: Iterator[flight.Result]) -> list[pa.Buffer]:
        """What came, unless it goes on for longer than an answer of a node does."""
        parts: list[pa.Buffer] = []
        size = 0
        for found in results:
            parts.append(found.body)
            size += len(found.body)
            if len(parts) > ANSWER_PARTS_MAX or size > MESSAGE_BYTES_MAX:
                # Without its connection nothing of the rest is waited for.
                self.reconnect()
                raise BadMessage(
                    f"{self.address} sent more than an answer of a node has: {len(parts)} "
                    f"messages, {size:,} bytes; is it a node?"
                )
        return parts

    def reconnect(self) -> None:
        """Let go of the connection: the next call makes another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def close(self) -> None:
        self.reconnect()

    def _connected(self) -> flight.FlightClient:
        with self._lock:
            if self._client is None:
                ours = self._credentials
                secrets = (
                    {}
                    if ours is None
                    else {
                        "tls_root_certs": ours.authority,
                        "cert_chain": ours.certificate,
                        "private_key": ours.key,
                    }
                )
                self._client = load_flight().FlightClient(
                    self.address.url(is_secure=ours is not None),
                    generic_options=[
                        ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX + _ENVELOPE_BYTES),
                        # Else gRPC would share a connection, and how long it waits to make
                        # another, with everybody in this process who calls the same address.
                        ("grpc.use_local_subchannel_pool", 1),
                    ],
                    **secrets,
                )
                outlives_fork(self._client)
            return self._client
