"""Errors of ours on the wire: by the name of their class, and with what they say.

What a node raises while it answers reaches the caller as the same error. Whatever Arrow Flight
raises besides becomes one of ours as well.
"""

from __future__ import annotations

import json
from typing import Any

from tidemill import errors
from tidemill.counters.replication.address import Address
from tidemill.errors import Bug, NoAccess, TidemillError, TooLarge, Unavailable
from tidemill.limits import REFUSAL_BYTES_MAX
from tidemill.shown import printable

# Those whose constructor takes more than words travel as what they are a kind of.
_BY_NAME = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, TidemillError) and kind is not errors.Corrupt
}


def packed(error: TidemillError) -> bytes:
    """The error as the caller will get it."""
    words = str(error)
    while True:
        found = json.dumps({"kind": type(error).__name__, "message": words}).encode()
        if len(found) <= REFUSAL_BYTES_MAX:
            return found
        words = words[: len(words) // 2]


def unpacked(data: bytes, address: Address) -> TidemillError | None:
    """The error that a node sent; None if that is none."""
    if not data or len(data) > REFUSAL_BYTES_MAX:
        return None
    try:
        found: Any = json.loads(data)
        kind, words = found["kind"], found["message"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(kind, str) or not isinstance(words, str):
        return None
    words = printable(words)
    # A fault of the other side's is none of ours, but no fault of the caller's either.
    if kind == Bug.__name__:
        return Unavailable(f"{address} failed: {words}")
    return _BY_NAME.get(kind, TidemillError)(words)


def typed(error: Exception, address: Address, *, is_secure: bool) -> TidemillError:
    """What a failed call means."""
    from pyarrow import flight  # noqa: PLC0415

    words = _short(str(error))
    told = unpacked(bytes(getattr(error, "extra_info", b"") or b""), address)
    if told is not None:
        return told
    if isinstance(error, flight.FlightUnavailableError):
        if "certificate" in words or "handshake" in words:
            return NoAccess(f"{address} is not who it should be: {words}; check its certificate")
        hint = "; if it is up, it may not accept this node's certificate" if is_secure else ""
        return Unavailable(f"{address} does not answer: {words}{hint}")
    if isinstance(error, flight.FlightTimedOutError):
        return Unavailable(f"{address} does not answer in time")
    # Before version 22 pyarrow has no class for an answer that is too large.
    if isinstance(error, flight.FlightCancelledError) or "message larger than max" in words:
        return TooLarge(f"{address} sent more than is accepted, or broke off: {words}")
    return Unavailable(f"{address} gave no answer of ours, is it a node? {words}")


def _short(words: str) -> str:
    """The first sentence of what gRPC says, which says everything several times."""
    words = words.partition(" gRPC client debug context")[0]
    words = words.rpartition("last error: ")[2] if "last error: " in words else words
    return printable(words[:300].strip().rstrip("."))
