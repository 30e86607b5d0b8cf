"""Records on Aerospike, with its own client: each is a record of the set `tidemill` with two bins.

    alerts:meta    g  6148914691236517205     d  …

Aerospike counts the writes of a record itself, but with 16 bits that wrap around. So the generation
is a bin of its own, which a write compares by a filter in the same step. The age of a record is
that of its last update, by the clock of the server.

A namespace keeps what it has confirmed through the loss of a node only if it is strongly consistent
(`strong-consistency true`); see `problems`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

from tidemill.errors import (
    Closed,
    Corrupt,
    DiskFull,
    InvalidInput,
    MissingExtra,
    NoAccess,
    OutcomeUnknown,
    StorageFailed,
    TidemillError,
    TooLarge,
    Unavailable,
)
from tidemill.limits import AEROSPIKE_RECORD_BYTES_MAX
from tidemill.records.address import RecordAddress
from tidemill.records.bounds import check_record_name, check_record_size
from tidemill.records.generations import new_generation
from tidemill.records.store import OneByOne, Record

try:
    import aerospike
    from aerospike_helpers import expressions
    from aerospike_helpers.operations import expression_operations, operations
except ImportError as cause:
    raise MissingExtra(
        "records on Aerospike need its client: pip install 'tidemill[aerospike]'"
    ) from cause

exception: Any = import_module("aerospike").exception  # whose types lack some

_SET = "tidemill"
_AGE = "age"  # what the age is called in an answer; no bin
_REFUSED: tuple[tuple[type[Exception], type[TidemillError], str], ...] = (
    (exception.RecordTooBig, TooLarge, "; raise write-block-size of the namespace"),
    (exception.ServerFull, DiskFull, "; make room in the namespace"),
    (exception.NamespaceNotFound, InvalidInput, "; the URL is aerospike://host/namespace/name"),
    (exception.AdminError, NoAccess, ""),
    (exception.ForbiddenError, NoAccess, ""),
    (exception.ParamError, StorageFailed, ""),
)
# The server or the network is away, or has too much to do.
_AWAY = (
    exception.TimeoutError,
    exception.ClusterError,
    exception.ConnectionError,
    exception.NoMoreConnectionsError,
    exception.MaxRetriesExceeded,
    exception.MaxErrorRateExceeded,
    exception.DeviceOverload,
    exception.RecordBusy,
    exception.ClusterChangeError,
)

T = TypeVar("T")


class AerospikeStore(OneByOne):
    """The records of one namespace."""

    record_bytes_max = AEROSPIKE_RECORD_BYTES_MAX

    def __init__(self, address: RecordAddress) -> None:
        self.place = address.place
        self._address = address
        self._lock = threading.Lock()
        self._is_closed = False
        self._pid = 0
        self._client: Any = None
        timeout_ms = int(address.timeout_s * 1000)
        self._timeouts = {"total_timeout": timeout_ms, "socket_timeout": timeout_ms}
        # A write is never sent again: whoever wrote looks what became of it.
        self._written = {
            **self._timeouts,
            "max_retries": 0,
            "key": aerospike.POLICY_KEY_SEND,
            "commit_level": aerospike.POLICY_COMMIT_LEVEL_ALL,
        }

    def get(self, name: str) -> Record | None:
        """The record as it is now; None if there is none."""
        asked = [
            operations.read("g"),
            operations.read("d"),
            expression_operations.expression_read(_AGE, expressions.SinceUpdateTime().compile()),
        ]
        policy = {**self._timeouts, "read_mode_sc": aerospike.POLICY_READ_MODE_SC_LINEARIZE}
        try:
            _, _, bins = self._call(
                lambda client: client.operate(self._key(name), asked, policy=policy)
            )
        except exception.RecordNotFound:
            return None
        try:
            return Record(bytes(bins["d"]), int(bins["g"]), int(bins[_AGE]) * 1_000)
        except (KeyError, TypeError, ValueError) as cause:
            raise Corrupt(f"record {name!r} of {self.place} is not one of ours") from cause

    def create(self, name: str, data: bytes) -> int | None:
        """Write a record that is not there; None if it is."""
        generation = new_generation()
        policy = {**self._written, "exists": aerospike.POLICY_EXISTS_CREATE}
        return generation if self._put(name, data, generation, policy) else None

    def replace(self, name: str, data: bytes, generation: int) -> int | None:
        """Write a record if it has this generation; None if it has another, or is gone."""
        following = new_generation()
        policy = {
            **self._written,
            "exists": aerospike.POLICY_EXISTS_UPDATE,
            "expressions": _has(generation),
        }
        return following if self._put(name, data, following, policy) else None

    def delete(self, name: str, generation: int) -> bool:
        """Delete a record if it has this generation; False if it has another, or is gone."""
        policy = {**self._written, "expressions": _has(generation)}
        try:
            self._call(lambda client: client.remove(self._key(name), policy=policy), is_write=True)
        except (exception.FilteredOut, exception.RecordNotFound):
            return False
        return True

    def problems(self) -> tuple[str, ...]:
        """Which settings of the namespace void what it confirms; each says what to do."""
        asked = f"namespace/{self._address.home}"
        told = str(self._call(lambda client: client.info_random_node(asked)))
        if "strong-consistency=true" in told:
            return ()
        return (
            f"the namespace {self._address.home} is not strongly consistent: when nodes are lost "
            "or cut off, two clients may both change a record; set strong-consistency to true",
        )

    def close(self) -> None:
        """Let go of connections; closing again does nothing."""
        with self._lock:
            self._is_closed = True
            client, self._client = self._client, None
        if client is not None and self._pid == os.getpid():
            client.close()

    def _put(self, name: str, data: bytes, generation: int, policy: dict[str, Any]) -> bool:
        check_record_size(name, len(data), self.place, self.record_bytes_max)
        bins = {"g": generation, "d": bytes(data)}
        meta = {"ttl": aerospike.TTL_NEVER_EXPIRE}
        try:
            self._call(
                lambda client: client.put(self._key(name), bins, meta, policy), is_write=True
            )
        except (exception.RecordExistsError, exception.FilteredOut, exception.RecordNotFound):
            return False
        return True

    def _key(self, name: str) -> tuple[str, str, str]:
        return (self._address.home, _SET, check_record_name(name))

    def _call(self, work: Callable[[Any], T], *, is_write: bool = False) -> T:
        try:
            return work(self._connected())
        except (
            exception.RecordExistsError,
            exception.FilteredOut,
            exception.RecordNotFound,
        ):
            raise
        except exception.AerospikeError as cause:
            raise self._ours(cause, is_write=is_write) from cause

    def _connected(self) -> Any:
        """The client of this process; that of a parent is not used, since threads serve it."""
        with self._lock:
            if self._is_closed:
                raise Closed(f"the records of {self.place} are closed")
            if self._client is None or self._pid != os.getpid():
                address = self._address
                client = aerospike.client(
                    {"hosts": list(address.hosts), "connect_timeout": int(address.timeout_s * 1000)}
                )
                login = (address.user, address.password) if address.user else ()
                self._client = client.connect(*login)
                self._pid = os.getpid()
            return self._client

    def _ours(self, cause: Any, *, is_write: bool) -> TidemillError:
        text = f"Aerospike at {self.place}: {cause.msg} ({cause.code})"
        if is_write and cause.in_doubt:
            return OutcomeUnknown(f"{text}; the write may have taken effect")
        if isinstance(cause, _AWAY):
            return Unavailable(text)
        for kind, ours, advice in _REFUSED:
            if isinstance(cause, kind):
                return ours(text + advice)
        return StorageFailed(text)


def _has(generation: int) -> Any:
    """The filter for a record with this generation."""
    return expressions.Eq(expressions.IntBin("g"), generation).compile()
