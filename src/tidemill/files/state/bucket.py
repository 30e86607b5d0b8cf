"""Bucket functions: how the key space is divided.

A pop looks only at the lowest bucket that holds items, so a bucket bounds both the work and the
memory of a pop. A function must not decrease as the key grows, or items would come out in the wrong
order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidemill.errors import BucketMismatch, InvalidInput
from tidemill.limits import INT64_MAX
from tidemill.names import check_name
from tidemill.shown import shown

Keys: TypeAlias = NDArray[np.int64]


class BucketFunction(Protocol):
    """Maps keys to buckets; `description` is what the folder records."""

    @property
    def description(self) -> str: ...

    def __call__(self, keys: Keys) -> Keys:
        """The buckets of ascending keys."""

    def of(self, key: int) -> int:
        """The bucket of one key."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Buckets of ``2 ** bits`` neighbouring keys; 37 bits are about 2.3 minutes of nanoseconds.

    >>> import numpy as np
    >>> Shift(4)(np.array([-1, 0, 15, 16])).tolist()
    [-1, 0, 0, 1]
    """

    bits: int = 37

    def __post_init__(self) -> None:
        if (
            not isinstance(self.bits, int)
            or isinstance(self.bits, bool)
            or not 0 <= self.bits <= 63
        ):
            raise InvalidInput(f"Shift takes 0 to 63 bits, not {shown(self.bits)}")

    @property
    def description(self) -> str:
        return f"shift:{self.bits}"

    def __call__(self, keys: Keys) -> Keys:
        return keys >> np.int64(self.bits)

    def of(self, key: int) -> int:
        return key >> self.bits


@dataclass(frozen=True, slots=True)
class Width:
    """Buckets of `width` neighbouring keys each, aligned to zero; right for negative keys too.

    >>> import numpy as np
    >>> Width(10)(np.array([-11, -10, -1, 0, 9, 10])).tolist()
    [-2, -1, -1, 0, 0, 1]
    """

    width: int

    def __post_init__(self) -> None:
        valid = isinstance(self.width, int) and not isinstance(self.width, bool)
        if not valid or not 1 <= self.width <= INT64_MAX:
            raise InvalidInput(
                f"Width takes a whole number from 1 to {INT64_MAX}, not {shown(self.width)}"
            )

    @property
    def description(self) -> str:
        return f"width:{self.width}"

    def __call__(self, keys: Keys) -> Keys:
        return np.floor_divide(keys, np.int64(self.width))

    def of(self, key: int) -> int:
        return key // self.width


@dataclass(frozen=True, slots=True)
class Custom:
    """Your own function under a name of your own, from an array of keys to an array of buckets.

    The folder records the name only: whoever opens it again passes the same function under the same
    name.

    >>> import numpy as np
    >>> days = Custom("days", lambda keys: keys // 86_400)
    >>> days(np.array([0, 86_399, 86_400])).tolist()
    [0, 0, 1]
    """

    name: str
    function: Callable[[Keys], Keys] = field(compare=False)

    def __post_init__(self) -> None:
        check_name(self.name, what="bucket function")
        if not callable(self.function):
            raise InvalidInput(f"bucket function {self.name!r} is not callable")

    @property
    def description(self) -> str:
        return f"custom:{self.name}"

    def __call__(self, keys: Keys) -> Keys:
        try:
            buckets = np.asarray(self.function(keys))
        except Exception as error:
            raise InvalidInput(f"bucket function {self.name!r} failed: {shown(error)}") from error
        if buckets.shape != keys.shape or buckets.dtype.kind != "i":
            raise InvalidInput(
                f"bucket function {self.name!r} must return one integer for each key; it returned "
                f"an array of {buckets.dtype} with shape {buckets.shape} for shape {keys.shape}"
            )
        if np.any(buckets[1:] < buckets[:-1]):
            raise InvalidInput(
                f"bucket function {self.name!r} must not decrease while keys grow, but it does"
            )
        return buckets.astype(np.int64, copy=False)

    def of(self, key: int) -> int:
        return int(self(np.array([key], np.int64))[0])


def choose(recorded: str | None, given: BucketFunction | None) -> BucketFunction:
    """The function to use, from what the folder records (None: a new folder) and what the caller
    gave.
    """
    if given is not None and not isinstance(given, Shift | Width | Custom):
        raise InvalidInput(
            f"unknown bucket function {shown(given)}: use tm.Shift(bits), tm.Width(width) "
            "or tm.Custom(name, function)"
        )
    if recorded is None:
        return given if given is not None else Shift()
    if given is not None and given.description == recorded:
        return given
    found = _described(recorded)
    if given is None and found is not None:
        return found
    instead = "" if given is None else f", not {given.description}"
    if found is not None:
        advice = "open it without `bucket`, or move its items to a new folder"
    elif recorded.startswith("custom:"):
        name = recorded.removeprefix("custom:")
        advice = f"pass the same function as before: bucket=tm.Custom({name!r}, function)"
    else:
        advice = "this release does not know it: use the one that made the folder, or a newer one"
    raise BucketMismatch(
        f"the folder was made with the bucket function {recorded}{instead}; {advice}"
    )


def _described(recorded: str) -> BucketFunction | None:
    """The function that a folder records, if it can be made from its description."""
    kind, _, parameter = recorded.partition(":")
    if kind in ("shift", "width") and parameter.isascii() and parameter.isdigit():
        return Shift(int(parameter)) if kind == "shift" else Width(int(parameter))
    return None


def split(keys: Keys, function: BucketFunction) -> list[tuple[int, int, int]]:
    """Where sorted keys cross from one bucket to the next: (bucket, start, stop) for each part."""
    buckets = function(keys)
    cuts = np.flatnonzero(buckets[1:] != buckets[:-1]) + 1
    starts = [0, *cuts.tolist()]
    stops = [*cuts.tolist(), len(keys)]
    return [(int(buckets[start]), start, stop) for start, stop in zip(starts, stops, strict=True)]
