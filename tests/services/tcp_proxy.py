"""A TCP proxy between a client and a server that fails where it is told to.

MySQL and PostgreSQL speak in packets, each with its length in front, in both directions; of others
a packet is what arrives at once, which a short question and its answer do. The proxy passes whole
packets and counts them, whichever the direction and the connection; right before
packet number `at` it does the fault:

- `cut`: both sides of the connection are closed, and the packet is lost.
- `tear`: as a cut, but the first half of the packet still arrives.
- `blackhole`: the packet and all that follow vanish, while both sides stay open.

So a statement that is lost on its way, one that was executed but whose answer is lost, and one that
was answered, are neighbouring numbers. Connections made afterwards pass. `fired` says that the
fault really happened.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, Self

Kind = Literal["cut", "tear", "blackhole"]
Direction = Literal["to server", "to client"]

Speech = Literal["mysql", "postgres", "any"]


@dataclass(frozen=True, slots=True)
class Fault:
    """What to do right before the packet with this number, from 0 on since `arm`."""

    at: int
    kind: Kind
    everyone: bool = False  # hits all connections that are open, not only the one of the packet


@dataclass(frozen=True, slots=True)
class Fired:
    """The fault that happened: which packet was hit."""

    fault: Fault
    direction: Direction
    packet_bytes: int
    accepted: int  # connections since `arm`: how often a client had begun anew before


class TcpProxy:
    """Listens on a port of its own; `port` is what a client connects to."""

    def __init__(self, server_port: int, speech: Speech = "mysql") -> None:
        self._server_port = server_port
        self._speech = speech
        self._lock = threading.Lock()
        self._links: set[_Link] = set()
        self._fault: Fault | None = None
        self._refusing = False
        self._closed = False
        self.packets = 0
        self.accepted = 0  # connections since `arm`
        self.refused = 0  # connections
        self.fired: Fired | None = None
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def arm(self, fault: Fault | None) -> None:
        """Count packets from 0 again, and do `fault` when its number comes."""
        with self._lock:
            self.packets = self.accepted = 0
            self._fault = fault
            self.fired = None

    def wait_fired(self, is_going_on: Callable[[], bool]) -> None:
        """Wait until the fault has happened to a call; once that has ended, it never will."""
        while True:
            may_fire = is_going_on()
            if self.fired is not None:
                return
            assert may_fire, "the call ended without the fault"
            time.sleep(0.001)

    def refuse(self, refusing: bool) -> None:
        """Close new connections at once, as a server that is down does."""
        with self._lock:
            self._refusing = refusing

    def cut_all(self) -> int:
        """Close every connection that is open now; how many there were."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.cut()
        return len(links)

    def close(self) -> None:
        self._closed = True
        # Closing alone would leave the thread in accept().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        with self._lock:
            links = list(self._links)
        for link in links:
            link.close()

    def passes(self, link: _Link, direction: Direction, packet: bytes) -> bytes | None:
        """Count a packet, and say what of it may pass; None means that the link was cut."""
        with self._lock:
            number = self.packets
            self.packets += 1
            fault = self._fault
            if fault is None or number != fault.at or self.fired is not None:
                return packet
            self.fired = Fired(fault, direction, len(packet), self.accepted)
            hit = list(self._links) if fault.everyone else [link]
        if fault.kind == "blackhole":
            for one in hit:
                one.swallowing = True
            return b""
        if fault.kind == "tear":
            link.pass_on(direction, packet[: max(1, len(packet) // 2)])
        for one in hit:
            one.cut()
        return None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                assert self._closed
                return
            with self._lock:
                refusing = self._refusing
                self.refused += refusing
                self.accepted += not refusing
            if refusing:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._server_port))
            except OSError:
                # The server is down; so the client sees what it would see without a proxy.
                client.close()
                continue
            link = _Link(self, client, server, _PACKETS[self._speech]())
            with self._lock:
                self._links.add(link)
            link.start()

    def pump_ended(self, link: _Link) -> bool:
        """Whether it was the second of the link's two, so that nobody uses its sockets."""
        with self._lock:
            link.pumping -= 1
            if not link.pumping:
                self._links.discard(link)
            return not link.pumping


class _Link:
    """One client's connection and the one to the server that belongs to it."""

    def __init__(
        self, proxy: TcpProxy, client: socket.socket, server: socket.socket, packets: Packets
    ) -> None:
        self._proxy = proxy
        self._packets = packets
        self._client = client
        self._server = server
        self.swallowing = False
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.pumping = 2
        self._pumps = [
            threading.Thread(target=self._pump, args=(direction,), name="proxy", daemon=True)
            for direction in ("to server", "to client")
        ]

    def start(self) -> None:
        for pump in self._pumps:
            pump.start()

    def close(self) -> None:
        self.cut()
        for pump in self._pumps:
            pump.join()

    def cut(self) -> None:
        for end in (self._client, self._server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # Closed already by its other side.

    def pass_on(self, direction: Direction, data: bytes) -> None:
        (self._server if direction == "to server" else self._client).sendall(data)

    def _pump(self, direction: Direction) -> None:
        source = self._client if direction == "to server" else self._server
        try:
            while (packet := self._packets.read(source, direction)) is not None:
                if self.swallowing:
                    continue
                passing = self._proxy.passes(self, direction, packet)
                if passing is None:
                    break
                if passing:
                    self.pass_on(direction, passing)
        except OSError:
            pass  # One side went away; closing below tells the other.
        # A blackhole says nothing, not even that a side has gone.
        if not self.swallowing:
            self.cut()
        if self._proxy.pump_ended(self):
            self._client.close()
            self._server.close()


class Packets(Protocol):
    """How one connection is taken apart."""

    def read(self, source: socket.socket, direction: Direction) -> bytes | None:
        """The next packet with its head; None at the end of the stream."""


class MySQLPackets:
    """The length in three bytes, and a number within the exchange."""

    def read(self, source: socket.socket, direction: Direction) -> bytes | None:
        head = _read_exactly(source, 4)
        if head is None:
            return None
        body = _read_exactly(source, int.from_bytes(head[:3], "little"))
        return None if body is None else head + body


class PostgresPackets:
    """A letter, and the length with itself in four bytes. What a client says first has no letter;
    that may be a question whether the server would encrypt, to which the answer is one byte.
    """

    _QUESTIONS = (80877103, 80877104)

    def __init__(self) -> None:
        self._has_started = False
        self._asked = threading.Event()

    def read(self, source: socket.socket, direction: Direction) -> bytes | None:
        is_first = direction == "to server" and not self._has_started
        head = _read_exactly(source, 4 if is_first else 1)
        if head is None:
            return None
        if direction == "to client" and self._asked.is_set():
            self._asked.clear()
            return head
        if not is_first:
            length = _read_exactly(source, 4)
            if length is None:
                return None
            head += length
        body = _read_exactly(source, int.from_bytes(head[-4:], "big") - 4)
        if body is None:
            return None
        if is_first:
            is_question = int.from_bytes(body[:4], "big") in self._QUESTIONS
            self._has_started = not is_question
            if is_question:
                self._asked.set()
        return head + body


class Arrivals:
    """What arrives at once."""

    def read(self, source: socket.socket, direction: Direction) -> bytes | None:
        return source.recv(1 << 20) or None


_PACKETS: dict[Speech, Callable[[], Packets]] = {
    "mysql": MySQLPackets,
    "postgres": PostgresPackets,
    "any": Arrivals,
}


def _read_exactly(source: socket.socket, count: int) -> bytes | None:
    parts = []
    while count:
        part = source.recv(min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
