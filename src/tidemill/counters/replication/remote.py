"""The counters of a node that runs elsewhere, for a client that is no node itself."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tidemill.closing import Closing
from tidemill.counters.replication.address import Address
from tidemill.counters.replication.caller import Caller
from tidemill.counters.replication.tls import Tls
from tidemill.errors import BadMessage

_TIMEOUT_S = 10.0


class RemoteCounters(Closing):
    """Calls one node; each call is one round trip, and raises what the node raises.

    >>> import tidemill as tm
    >>> with tm.Counters("node-1", listen="127.0.0.1:0") as counters:
    ...     with RemoteCounters(counters.address) as remote:
    ...         remote.upsert("visits", 3), remote.get("visits")
    (3, 3)
    """

    def __init__(
        self, address: str, *, tls: Tls | None = None, timeout_s: float = _TIMEOUT_S
    ) -> None:
        credentials = None if tls is None else tls.read()
        self._caller = Caller(Address.of(address), credentials, timeout_s=timeout_s)

    def get(self, name: str) -> int:
        return self._number("get", name=name)

    def upsert(self, name: str, delta: int = 1) -> int:
        return self._number("upsert", name=name, delta=delta)

    def update_ttl(self, name: str, when: datetime | None) -> None:
        self._call("update-ttl", name=name, when=None if when is None else when.isoformat())

    def delete(self, name: str) -> None:
        self._call("delete", name=name)

    def all(self) -> tuple[dict[str, int], dict[str, int]]:
        found = self._call("all")
        return found["live"], found["expired"]

    def parts(self, name: str) -> dict[str, int]:
        return dict(self._call("parts", name=name)["parts"])

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that the node knows of: who is removed, and how far each is behind it."""
        return list(self._call("nodes")["nodes"])

    def remove_node(self, node: str) -> None:
        self._call("remove-node", node=node)

    def close(self) -> None:
        self._caller.close()

    def _number(self, action: str, **said: Any) -> int:
        return int(self._call(action, **said)["value"])

    def _call(self, action: str, **said: Any) -> Any:
        answers = self._caller.call(action, json.dumps(said).encode())
        try:
            (answer,) = answers
            return json.loads(answer.to_pybytes())
        except ValueError as error:
            raise BadMessage(f"{self._caller.address} gave no answer of a node") from error
