"""What every store checks before it sends anything: names and sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TypeVar

from tidemill.errors import InvalidName, TooLarge
from tidemill.limits import RECORD_NAME_LENGTH_MAX

_GRAMMAR = re.compile(rf"[A-Za-z0-9._:-]{{1,{RECORD_NAME_LENGTH_MAX}}}", re.ASCII)

T = TypeVar("T")


def check_record_name(name: str) -> str:
    """Return the name of a record if it may be one, else raise `InvalidName`.

    >>> check_record_name("alerts:meta")
    'alerts:meta'
    """
    if _GRAMMAR.fullmatch(name) is None:
        raise InvalidName(
            f"record name {name!r} is not allowed: use letters, digits, '-', '_', '.' and ':', at "
            f"most {RECORD_NAME_LENGTH_MAX}"
        )
    return name


def check_record_size(name: str, size: int, place: str, bytes_max: int) -> None:
    """Raise `TooLarge` for a record above what its store takes.

    >>> check_record_size("a", 9, "redis://host:6379", 8)
    Traceback (most recent call last):
    tidemill.errors.TooLarge: record 'a' would have 9 bytes, and redis://host:6379 takes 8
    """
    if size > bytes_max:
        raise TooLarge(f"record {name!r} would have {size} bytes, and {place} takes {bytes_max}")


def chunked(
    items: Sequence[T], sizes: Sequence[int], bytes_max: int, count_max: int
) -> Iterator[Sequence[T]]:
    """Runs of the items, each of at most so many bytes and items; an item above that is alone.

    >>> list(chunked("abcd", [4, 4, 9, 1], 8, 2))
    ['ab', 'c', 'd']
    """
    start = total = 0
    for place, size in enumerate(sizes):
        if place > start and (total + size > bytes_max or place - start == count_max):
            yield items[start:place]
            start, total = place, 0
        total += size
    if start < len(items):
        yield items[start:]
