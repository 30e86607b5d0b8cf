"""The links of a node to all of its peers, which come and go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from tidemill.counters.replication.address import Address
from tidemill.counters.replication.link import Link
from tidemill.errors import TooLarge
from tidemill.limits import COUNTER_PEERS_MAX


class Mesh:
    """One link for each address. Any thread may call; what waits holds no lock."""

    def __init__(self, make: Callable[[Address], Link]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._links: dict[Address, Link] = {}
        self._is_closed = False

    def addresses(self) -> list[Address]:
        with self._lock:
            return sorted(self._links, key=str)

    def add(self, address: Address) -> None:
        """Begin to exchange with whoever is there; one that is known already stays as it is."""
        with self._lock:
            if address in self._links or self._is_closed:
                return
            if len(self._links) >= COUNTER_PEERS_MAX:
                raise TooLarge(f"a node has at most {COUNTER_PEERS_MAX:,} peers")
            link = self._links[address] = self._make(address)
        try:
            link.start()
        except BaseException:
            # One whose thread could not be started would never call; it can be added again.
            self.remove(address)
            raise

    def remove(self, address: Address) -> bool:
        """End a link; False if there was none."""
        with self._lock:
            link = self._links.pop(address, None)
        if link is not None:
            link.close()
        return link is not None

    def become(self, wanted: Iterable[Address], among: set[Address]) -> None:
        """Have links to those that are wanted; of the others, end those that are `among` these."""
        wanted = frozenset(wanted)
        for address in wanted:
            self.add(address)
        for address in among - wanted:
            self.remove(address)

    def ask(self) -> None:
        """Have a round with every peer at once, and do not wait for it."""
        for link in self._all():
            link.ask()

    def sync(self, timeout_s: float, *, also_away: bool = True) -> dict[str, str]:
        """A round with every peer; how each ended, by address."""
        links = [link for link in self._all() if also_away or not link.is_away]
        asked = [(link, link.ask()) for link in links]
        deadline_s = time.monotonic() + timeout_s
        return {
            str(link.address): link.wait(number, max(0.0, deadline_s - time.monotonic()))
            for link, number in asked
        }

    def close(self) -> None:
        """End all links, and make no more."""
        with self._lock:
            self._is_closed = True
        for link in self._all():
            link.stop()
        for address in self.addresses():
            self.remove(address)

    def _all(self) -> list[Link]:
        with self._lock:
            return list(self._links.values())
