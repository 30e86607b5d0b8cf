"""Keys: int64, from integers or from instants.

A timestamp becomes nanoseconds since 1970 UTC, the unit that an item pushed without a key gets. A
naive one is no instant and is refused, as are floats (rounding would reorder), booleans and nulls.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.batch.columns import first_null
from tidemill.batch.ready import int64_values
from tidemill.errors import InvalidKey
from tidemill.limits import INT64_MAX, INT64_MIN
from tidemill.shown import shown

_NS_PER = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MANY = 8192  # keys that are sorted in whichever way is the faster one here
_DIGIT_BITS = 16

Keys = np.ndarray[Any, np.dtype[np.int64]]


def keys_from_array(array: pa.Array) -> Keys:
    """The keys of a column; those that are int64 already are not copied.

    >>> keys_from_array(pa.array([3, 1], pa.uint8()))
    array([3, 1])
    >>> keys_from_array(pa.array([3, None]))
    Traceback (most recent call last):
    tidemill.errors.InvalidKey: the key of row 1 is null: every key is an integer or a timestamp
    """
    kind = array.type
    if array.null_count:
        raise InvalidKey(
            f"the key of row {first_null(array)} is null: every key is an integer or a timestamp"
        )
    if kind == pa.int64():
        return _values(array)
    if pa.types.is_dictionary(kind):
        return keys_from_array(array.dictionary_decode())
    if kind == pa.uint64():
        values = _values(array.view(pa.int64())).view(np.uint64)
        _refuse_first(
            values > np.uint64(INT64_MAX), values, "is outside the int64 range, -2**63 to 2**63 - 1"
        )
        return values.astype(np.int64)
    if pa.types.is_integer(kind):
        return _values(array.cast(pa.int64()))
    if pa.types.is_timestamp(kind):
        return _instants(array)
    if len(array) == 0 and pa.types.is_null(kind):
        return np.empty(0, np.int64)
    raise InvalidKey(f"keys are integers or timestamps, not {kind}: convert them first")


def _values(array: pa.Array) -> Keys:
    # Not by to_numpy(), which imports pandas where it is installed: half a second, for nothing.
    return int64_values(array) if len(array) else np.empty(0, np.int64)


def _instants(array: pa.Array) -> Keys:
    if array.type.tz is None:
        raise InvalidKey(
            "keys that are timestamps need a time zone: naive times have no place on the clock"
        )
    factor = _NS_PER[array.type.unit]
    values = _values(array.view(pa.int64()))
    if factor == 1:
        return values
    outside = (values > INT64_MAX // factor) | (values < -(-INT64_MIN // factor))
    _refuse_first(
        outside, values, f"({array.type.unit} since 1970) is outside the int64 range in ns"
    )
    return values * factor


def _refuse_first(wrong: np.ndarray[Any, Any], values: np.ndarray[Any, Any], why: str) -> None:
    if wrong.any():
        row = int(wrong.argmax())
        raise InvalidKey(f"the key of row {row}, {values[row]}, {why}")


def stable_order(keys: Keys) -> Keys:
    """Where the keys are to be taken from so that they ascend, equal ones in the order given.

    >>> stable_order(np.array([3, 1, 3, 2])).tolist()
    [1, 3, 0, 2]
    """
    count = len(keys)
    low = int(keys.min()) if count else 0
    span_bits = (int(keys.max()) - low).bit_length() if count else 0
    place_bits = count.bit_length()
    fits = span_bits + place_bits < 64
    digits = max(-(-span_bits // _DIGIT_BITS), 1)
    if count >= _MANY and (not fits or digits * _digit_cost() < 1):
        return _order_by_digits(keys, low, digits)
    if not fits:
        return np.argsort(keys, kind="stable")
    # Keys near one another leave room for their position in the same number. Sorting numbers is
    # several times as fast as sorting positions by number, and the position breaks ties.
    packed = (keys - low) << place_bits
    packed |= np.arange(count)
    packed.sort()
    packed &= (1 << place_bits) - 1
    return packed


def _order_by_digits(keys: Keys, low: int, digits: int) -> Keys:
    """The same by digits of 16 bits, the last one first: NumPy sorts these without comparing."""
    offsets = keys.view(np.uint64) - np.uint64(low % 2**64)
    order = np.argsort(offsets.astype(np.uint16), kind="stable")
    for digit in range(1, digits):
        shifted = offsets[order] >> np.uint64(_DIGIT_BITS * digit)
        order = order[np.argsort(shifted.astype(np.uint16), kind="stable")]
    return order


@cache
def _digit_cost() -> float:
    """What a digit takes, as a part of what sorting as many packed numbers does. NumPy's sort for
    AVX-512 takes four times as long on some processors (Zen 4) as the one for AVX2 would, so that
    it is tried once.
    """
    keys = np.random.default_rng(0).integers(0, 2**32, _MANY)

    def seconds(action: Callable[[], object]) -> float:
        start = time.perf_counter()
        action()
        return time.perf_counter() - start

    by_digits = min(seconds(lambda: _order_by_digits(keys, 0, 2)) for _ in range(3)) / 2
    return by_digits / min(seconds(lambda: np.sort(keys)) for _ in range(3))


def keys_from_values(values: Sequence[Any]) -> Keys:
    """The keys of Python rows.

    >>> keys_from_values([3, 1])
    array([3, 1])
    >>> keys_from_values([3, True])
    Traceback (most recent call last):
    tidemill.errors.InvalidKey: the key of row 1 is a bool: every key is an integer or a timestamp
    """
    # numpy would take True for 1 and 1.5 for 1, so the types are looked at first.
    if set(map(type, values)) <= {int}:
        try:
            return np.fromiter(values, np.int64, len(values))
        except OverflowError:
            pass  # The slow way finds the row.
    keys = [_key(value, row) for row, value in enumerate(values)]
    return np.fromiter(keys, np.int64, len(keys))


def _key(value: Any, row: int) -> int:
    if isinstance(value, datetime):
        key = _instant(value, row)
    elif isinstance(value, (bool, np.bool_)):
        raise _no_key(value, row)
    else:
        try:
            key = operator.index(value)
        except TypeError:
            raise _no_key(value, row) from None
    if not INT64_MIN <= key <= INT64_MAX:
        raise InvalidKey(
            f"the key of row {row}, {shown(key)}, is outside the int64 range, -2**63 to 2**63 - 1"
        )
    return key


def _no_key(value: object, row: int) -> InvalidKey:
    what = "null" if value is None else f"a {type(value).__name__}"
    return InvalidKey(f"the key of row {row} is {what}: every key is an integer or a timestamp")


def _instant(value: datetime, row: int) -> int:
    if value != value:  # noqa: PLR0124  The NaT of pandas is a datetime that equals nothing.
        raise InvalidKey(f"the key of row {row} is null: every key is an integer or a timestamp")
    if value.utcoffset() is None:
        raise InvalidKey(
            f"the key of row {row} is a datetime without a time zone: "
            "naive times have no place on the clock"
        )
    # A Timestamp of pandas counts nanoseconds beyond its microseconds.
    extra_ns: int = getattr(value, "nanosecond", 0)
    return (value - _EPOCH) // _MICROSECOND * 1_000 + extra_ns
