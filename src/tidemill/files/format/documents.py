"""What small records hold: JSON, written without blanks, and believed only within bounds. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, TypeVar

from tidemill.errors import Corrupt
from tidemill.limits import INT64_MAX, INT64_MIN

T = TypeVar("T")


def pack_document(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def parse_document(
    payload: bytes | memoryview, read: Callable[[Any], T], what: str = "record"
) -> T:
    """What `read` makes of the document; `Corrupt` if it is none, or makes no sense."""
    try:
        return read(json.loads(bytes(payload)))
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise Corrupt(f"the {what} makes no sense: {error}") from error


def whole(value: object) -> int:
    """The value, if it is a whole number of 64 bits."""
    if type(value) is not int or not INT64_MIN <= value <= INT64_MAX:
        raise ValueError(f"{value!r} is no whole number of 64 bits")
    return value


def natural(value: object, most: int = INT64_MAX) -> int:
    """The value, if it is such a number from 0 to `most`."""
    number = whole(value)
    if not 0 <= number <= most:
        raise ValueError(f"{number} is not between 0 and {most}")
    return number
