"""A log whose connection fails at every packet of a step, in each of three ways."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.services.tcp_proxy import Fault, Kind, TcpProxy
from tidemill.log.sql.store import ServerLog

# A blackhole costs as much time as it takes to notice it; the others cost none.
KINDS = ["cut", "tear", pytest.param("blackhole", marks=pytest.mark.slow)]
TIMEOUT_S = 0.25
_BEYOND = 2  # steps without a fault, until it is believed that there are no more packets


class PacketFaults:
    """Opens logs through a proxy, and has steps fail there."""

    def __init__(
        self, proxy: TcpProxy, kind: Kind, url: str, tally: Callable[[str, int], None]
    ) -> None:
        self.url = f"{url}?timeout_s={TIMEOUT_S}"  # through the proxy
        self._proxy = proxy
        self._kind = kind
        self._tally = tally
        self._stores: list[ServerLog] = []

    def open(self, parallelism: int) -> ServerLog:
        """The log through the proxy, with so many shards."""
        self._stores.append(ServerLog(self.url, parallelism=parallelism, retry_s=60))
        return self._stores[-1]

    def close(self) -> None:
        for store in self._stores:
            store.close()

    def at_every_packet(
        self,
        of_what: str,
        step: Callable[[], None],
        *,
        before: Callable[[], None],
        after: Callable[[], None] = lambda: None,
    ) -> None:
        """Do `step` with a fault at its first packet, then at its second, until it has no more.

        `before` brings everything into the state that the step starts from, `after` looks at what
        came of it.
        """
        proxy = self._proxy
        fired = at = beyond = 0
        # Threads, and statements that the server knows by now, may need a packet less.
        while beyond < _BEYOND:
            before()
            proxy.arm(Fault(at, self._kind))
            step()
            is_fired = proxy.fired is not None
            proxy.arm(None)
            after()
            fired += is_fired
            beyond = 0 if is_fired else beyond + 1
            at += 1
        assert fired > 1
        self._tally(f"faults at packets of {of_what}", fired)
