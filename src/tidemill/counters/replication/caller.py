"""Calls to one node, over a connection that is kept."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pyarrow as pa

from tidemill.closing import Closing
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.arrow_flight import load_flight
from tidemill.counters.replication.forking import outlives_fork
from tidemill.counters.replication.refusals import typed
from tidemill.counters.replication.tls import Credentials
from tidemill.errors import TooLarge
from tidemill.limits import MESSAGE_BYTES_MAX

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
            client = self._connected()
            return [found.body for found in client.do_action(flight.Action(action, body), options)]
        except (pa.ArrowException, OSError, ValueError) as error:
            raise typed(error, self.address, is_secure=self._credentials is not None) from error

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
