"""Counters that many nodes count at once, each on its own, and that come to the same sums.

    upsert, get ──▶ ledger (memory) ──▶ folder, within save_ms
                      ▲      │
      peers ──▶ server┘      └▶ links ──▶ peers, every sync_ms

The ledger is the truth; this handle gives it a server, links and a keeper's thread.
"""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import numpy as np
import pyarrow as pa

from tidemill.clock import Clock, SystemClock, wait_seconds
from tidemill.closing import Closing
from tidemill.counters import Ledger, Replica
from tidemill.counters.intervals import check_interval_ms
from tidemill.counters.over import Over
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.arrow_flight import load_flight
from tidemill.counters.replication.caller import Caller
from tidemill.counters.replication.gone import Gone
from tidemill.counters.replication.link import Link
from tidemill.counters.replication.mesh import Mesh
from tidemill.counters.replication.parcel import TOKEN_BYTES
from tidemill.counters.replication.provider import Peers, Provider, addresses
from tidemill.counters.replication.responder import Responder
from tidemill.counters.replication.tls import Tls
from tidemill.counters.replication.traffic import Lags, PeerTraffic, Traffic
from tidemill.counters.snapshot import SNAPSHOT_SCHEMA, snapshot_of
from tidemill.errors import Closed, InvalidInput, TidemillError
from tidemill.event import Event
from tidemill.shown import shown

logger = logging.getLogger(__name__)

_CLOSE_S_MAX = 3.0  # what the last exchange of a node that closes may take, and its upkeep
_LOOK_S = 1.0  # between two looks at the provider
_POLL_S_MAX = 0.1  # between two looks at how much there is to send

_alive: weakref.WeakSet[Counters] = weakref.WeakSet()


class Counters(Closing):
    """A node of replicated counters.

    Any node may change any counter at any time, whether it reaches the others or not; all come to
    the same values. A counter is made by its first change.

    >>> import tidemill as tm
    >>> one = tm.Counters("node-1", listen="127.0.0.1:0")
    >>> two = tm.Counters("node-2", listen="127.0.0.1:0", peers=[one.address])
    >>> one.upsert("visits", 100), two.upsert("visits", 70)
    (100, 70)
    >>> two.sync() == {one.address: "ok"}
    True
    >>> one.get("visits"), two.get("visits")
    (170, 170)
    >>> two.close(); one.close()
    """

    SNAPSHOT = SNAPSHOT_SCHEMA  # of what `snapshot` returns

    def __init__(
        self,
        node: str,  # the id of this node, of no other that lives
        *,
        path: str
        | os.PathLike[str]
        | None = None,  # its folder; None: what it counted ends with it
        listen: str | None = None,  # where peers and clients reach it; port 0: any that is free
        peers: Peers = (),  # addresses, or who says which: a function, or the path of a file
        tls: Tls | None = None,  # certificates; needed beyond this machine
        insecure: bool = False,  # listen beyond this machine without them
        read_only: bool = False,  # follow the others, and change nothing
        sync_ms: int = 2_000,  # between two exchanges with a peer
        buffer_max: int = 1_024,  # changed counters that make it exchange earlier
        reconnect_ms: int = 5_000,  # before a peer that did not answer is called again
        timeout_ms: int = 30_000,  # after which a silent peer has not answered
        save_ms: int = 100,  # within which a change is on disk
        gc_ms: int = 60_000,  # between two looks for what expired or was deleted
        clock: Clock | None = None,  # for tests
    ) -> None:
        for what, number in (
            ("sync_ms", sync_ms),
            ("reconnect_ms", reconnect_ms),
            ("timeout_ms", timeout_ms),
            ("save_ms", save_ms),
            ("gc_ms", gc_ms),
        ):
            check_interval_ms(what, number)
        if type(buffer_max) is not int or buffer_max < 1:
            raise InvalidInput(f"buffer_max is a whole number from 1 on, not {shown(buffer_max)}")
        self._provider = (
            Provider(peers) if callable(peers) or isinstance(peers, os.PathLike) else None
        )
        fixed = addresses(cast(Iterable[str], peers)) if self._provider is None else frozenset()
        self._credentials = None if tls is None else tls.read_for(node)
        place = None if listen is None else _place(listen, is_safe=tls is not None or insecure)
        if place is not None or fixed or self._provider is not None:
            load_flight()  # where it is missing, that is said while there is no trace of a node
        self._sync_ms, self._reconnect_ms = sync_ms, reconnect_ms
        self._timeout_s = timeout_ms / 1000
        self._buffer_max, self._gc_s = buffer_max, gc_ms / 1000
        self._token = secrets.token_bytes(TOKEN_BYTES)
        self._traffic = Traffic()
        self._lags = Lags()
        self._halted: TidemillError | None = None
        self._provided: set[Address] = set()
        self._closing = Event()
        self.over = Over()  # halted, or closed
        self._is_closed = False
        self._responder: Responder | None = None
        self._mesh = Mesh(self._link)
        self._server: Any = None
        self._keeper = threading.Thread(target=self._keep, name="tidemill-counters", daemon=True)
        self._real = Ledger(
            node, path=path, read_only=read_only, save_ms=save_ms, clock=clock or SystemClock()
        )
        self._ledger: Ledger = self._real  # `Gone`, once it must not be used any more
        try:
            if place is not None:
                self._server = self._serve(place)
            for address in fixed:
                self._mesh.add(address)
            self._keeper.start()
        except BaseException:
            self._closing.set()
            self._mesh.close()
            try:
                self._real.close()
            finally:
                self._end_replication()
            raise
        _alive.add(self)

    @property
    def node(self) -> str:
        """The id of this node."""
        return self._real.replica.node

    @property
    def address(self) -> str:
        """Where peers and clients reach this node."""
        if self._server is None:
            raise InvalidInput(f"{self.node} does not listen: open it with listen='127.0.0.1:0'")
        return str(self._server.address)

    @property
    def peers(self) -> list[str]:
        """The addresses of the peers that this node calls."""
        return [str(address) for address in self._mesh.addresses()]

    @property
    def halted(self) -> TidemillError | None:
        """Why this node has stopped; None while it goes on."""
        return self._halted

    def wait_halted(self, timeout_s: float | None = None) -> TidemillError | None:
        """Wait until this node has stopped by itself, or was closed, or for so long; why it
        stopped, if it did.
        """
        self.over.wait(None if timeout_s is None else wait_seconds(timeout_s, what="timeout_s"))
        return self._halted

    def upsert(self, name: str, delta: int = 1) -> int:
        """Add to a counter, and make it if it is not there; returns its new value.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters:
        ...     counters.upsert("visits"), counters.upsert("visits", -3)
        (1, -2)
        """
        return self._ledger.upsert(name, delta)

    def upsert_many(
        self,
        names: Sequence[str] | pa.Array,
        deltas: int | Sequence[int] | np.ndarray | pa.Array = 1,
    ) -> np.ndarray:
        """Add to many counters, all or none; returns their new values. Names may come twice.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters:
        ...     counters.upsert_many(["a", "b", "a"], [1, 2, 3]).tolist(), counters.get("a")
        ([4, 2, 4], 4)
        """
        return self._ledger.upsert_many(names, deltas)

    def get(self, name: str) -> int:
        """The value of a counter: the sum of what all nodes have counted, as far as it is known.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters:
        ...     counters.get("visits")
        Traceback (most recent call last):
        tidemill.errors.NoSuchCounter: ...
        """
        return self._ledger.get(name)

    def update_ttl(self, name: str, when: datetime | None) -> None:
        """Let a counter expire at a time, with its zone; None: never.

        >>> import tidemill as tm
        >>> from datetime import UTC, datetime, timedelta
        >>> with tm.Counters("node-1") as counters:
        ...     value = counters.upsert("visits")
        ...     counters.update_ttl("visits", datetime.now(UTC) - timedelta(seconds=1))
        ...     counters.get("visits")
        Traceback (most recent call last):
        tidemill.errors.CounterExpired: ...
        """
        self._ledger.update_ttl(name, when)

    def delete(self, name: str) -> None:
        """Delete a counter, on every node. What others count meanwhile without knowing of it goes
        with it.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters:
        ...     value = counters.upsert("visits", 7)
        ...     counters.delete("visits")
        ...     counters.upsert("visits", 1)
        1
        """
        self._ledger.delete(name)

    def all(self) -> tuple[dict[str, int], dict[str, int]]:
        """Every counter and its value: those that live, and those that have expired.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters:
        ...     value = counters.upsert("visits", 7)
        ...     counters.all()
        ({'visits': 7}, {})
        """
        return self._ledger.all()

    def parts(self, name: str) -> dict[Replica, int]:
        """What each node has counted: by its id and incarnation, which is new if it lost its state.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters:
        ...     value = counters.upsert("visits", 7)
        ...     {replica.node: value for replica, value in counters.parts("visits").items()}
        {'node-1': 7}
        """
        return self._ledger.parts(name)

    def expiry(self, name: str) -> datetime | None:
        """When a counter expires; None if it does not.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters:
        ...     value = counters.upsert("visits")
        ...     counters.expiry("visits")
        """
        return self._ledger.expiry(name)

    def snapshot(self) -> pa.RecordBatch:
        """All counters that live as columns, to be sent to a log, say, where Spark can chart them.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1") as counters, tm.Log(
        ...     "memory:doc-snapshot", schema=tm.Counters.SNAPSHOT
        ... ) as log:
        ...     value = counters.upsert("visits", 7)
        ...     receipt = log.publisher().send(counters.snapshot())
        ...     [(row["counter"], row["value"]) for row in log.read().rows()]
        [('visits', 7)]
        """
        return snapshot_of(self.node, self._ledger.all()[0])

    def add_peer(self, address: str) -> None:
        """Exchange with one node more, from now on."""
        (found,) = addresses([address])
        self._ledger.replica  # noqa: B018  A node that was halted or closed has no more peers.
        self._mesh.add(found)

    def remove_peer(self, address: str) -> None:
        """Call a node no more. It stays a member, which is waited for before what was deleted is
        forgotten; `remove_node` ends that.
        """
        if not self._mesh.remove(Address.of(address)):
            raise InvalidInput(f"{address} is no peer of {self.node}; there are {self.peers}")

    def remove_node(self, node: str) -> None:
        """Declare a node gone for good: nobody waits for it any more. What it counted stays in the
        sums. If it comes back all the same, it is refused until it has an empty folder.
        """
        self._ledger.remove_node(node)

    def sync(self, timeout_s: float = 10.0) -> dict[str, str]:
        """Exchange with every peer now; how that went, by address: `ok`, or the name of an error.

        >>> import tidemill as tm
        >>> with tm.Counters("node-1", peers=["127.0.0.1:9"]) as counters:
        ...     counters.sync()
        {'127.0.0.1:9': 'Unavailable'}
        """
        wait_s = wait_seconds(timeout_s, what="timeout_s")
        self._ledger.save()
        return self._mesh.sync(wait_s)

    def save(self) -> None:
        """Have everything on disk now, instead of within `save_ms`."""
        self._ledger.save()

    def metrics(self) -> Mapping[str, PeerTraffic]:
        """What went between this node and its peers so far, by their ids."""
        found = self._traffic.peers()
        for peer, lag_s in self._lags.now().items():
            found.setdefault(peer, PeerTraffic()).lag_s = lag_s
        return found

    def close(self) -> None:
        """Tell the peers that can be reached, save, and let go; twice does no harm, and a close
        that was interrupted is to be repeated.
        """
        if self._is_closed:
            return
        self._closing.set()
        # One that waits for a function of the user's, which need not return, is left to itself.
        self._keeper.join(_CLOSE_S_MAX)
        _alive.discard(self)
        if self._halted is None:
            self._mesh.sync(_CLOSE_S_MAX, also_away=False)
        self._become(Closed(f"the counters of {self.node} were closed; open them again"))
        self._mesh.close()
        try:
            self._real.close()  # Before the server, which may take its time.
        finally:
            self._end_replication()
            self.over.come()
        self._is_closed = True  # Not before: each step is done again after an interrupt.

    def __repr__(self) -> str:
        return f"<Counters {self.node!r}>"

    def _serve(self, place: Address) -> Any:
        # Arrow Flight takes a tenth of a second to import, which a node that only counts can spare.
        from tidemill.counters.replication.server import Server  # noqa: PLC0415

        self._responder = Responder(self._real, self._traffic, self._token, self._halt)
        return Server(place, self._credentials, self._responder.answer)

    def _link(self, address: Address) -> Link:
        return Link(
            Caller(address, self._credentials, timeout_s=self._timeout_s),
            self._real,
            self._traffic,
            self._token,
            sync_ms=self._sync_ms,
            reconnect_ms=self._reconnect_ms,
            on_halt=self._halt,
        )

    def _keep(self) -> None:
        """Look after what is due, until the node is closed or halted."""
        poll_s = min(_POLL_S_MAX, self._sync_ms / 4000)
        gc_s = time.monotonic() + self._gc_s
        look_s = 0.0
        while not self._closing.wait(poll_s) and self._halted is None:
            now_s = time.monotonic()
            try:
                if self._provider is not None and now_s >= look_s:
                    look_s = now_s + _LOOK_S
                    self._look(self._provider)
                if self._real.fenced is not None:
                    self._halt(self._real.fenced)
                    break
                if self._real.updates > self._buffer_max:
                    self._mesh.ask()
                self._lags.note(self._real.nodes())
                if now_s >= gc_s:
                    gc_s = now_s + self._gc_s
                    self._real.collect()
                    if self._responder is not None:
                        self._responder.forget_readers()
            except Exception as error:
                if self._closing.is_set():
                    return
                # The disk, or a duplicate: every call of the user's says so as well.
                is_ours = isinstance(error, TidemillError)
                logger.error("the upkeep of %s failed: %s", self.node, error, exc_info=not is_ours)
        if self._halted is not None:
            self._end_replication()

    def _look(self, provider: Provider) -> None:
        wanted = provider.look()
        if wanted is None or self._closing.is_set():
            return
        self._provided |= wanted  # Before: where that breaks off, the rest is seen to next time.
        self._mesh.become(wanted, self._provided)
        self._provided = set(wanted)

    def _halt(self, error: TidemillError) -> None:
        """Stop for good: two nodes that count under one name would undo each other."""
        if self._halted is None:
            self._halted = error
            logger.error("%s has stopped: %s", self.node, error)
            self._become(error)
            self.over.come()

    def _end_replication(self) -> None:
        self._mesh.close()
        if self._server is not None:
            self._server.close()

    def _become(self, error: TidemillError) -> None:
        self._ledger = cast(Ledger, Gone(error))


def _place(listen: str, *, is_safe: bool) -> Address:
    found = Address.of(listen)
    if not is_safe and not found.is_loopback:
        raise InvalidInput(
            f"whoever reaches {found} could change the counters: give certificates (tls=tm.Tls(…)),"
            " listen on 127.0.0.1, or say insecure=True where the network itself is safe"
        )
    return found


def _disown() -> None:
    """A child of os.fork() has the memory of a node, but none of its threads."""
    for counters in list(_alive):
        words = f"the counters of {counters.node} were opened before os.fork(); open a new node"
        # New ones, for a thread that is not there may have held the lock of the old.
        counters._closing, counters.over = Event(), Over()
        counters._closing.set()
        counters.over.come()
        counters._is_closed = True
        counters._become(Closed(words))


os.register_at_fork(after_in_child=_disown)
