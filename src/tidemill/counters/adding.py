"""Many updates as columns: names with numbers, and the sum for each name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidemill.batch.wrappings import unwrapped
from tidemill.counters.message import Ints
from tidemill.errors import InvalidInput, InvalidName
from tidemill.limits import INT64_MAX, INT64_MIN
from tidemill.shown import shown

_FEW = 64  # names that are numbered sooner than Arrow has an array of them


def as_names(names: Sequence[str] | pa.Array | pa.ChunkedArray) -> tuple[list[str], Ints]:
    """Each name once, and for each row which of them it is.

    >>> as_names(["a", "b", "a"])
    (['a', 'b'], array([0, 1, 0]))
    """
    if isinstance(names, str):
        raise InvalidInput("names are a sequence of strings, not one; upsert takes one")
    if isinstance(names, list) and len(names) <= _FEW and all(type(name) is str for name in names):
        numbers: dict[str, int] = {}
        at = [numbers.setdefault(name, len(numbers)) for name in names]
        return list(numbers), np.array(at, dtype=np.int64)
    try:
        array = names if isinstance(names, pa.Array | pa.ChunkedArray) else pa.array(names)
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        array = unwrapped(array)
        if array.type == pa.string_view() or (array.type == pa.null() and not len(array)):
            array = array.cast(pa.string())
        if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
            raise InvalidName(f"counter names are strings, not {array.type}")
        encoded = array.dictionary_encode()
        encoded.dictionary.validate(full=True)  # It may hold bytes that are no text.
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, UnicodeError, OverflowError) as error:
        raise InvalidName(f"counter names are strings: {error}") from error
    if encoded.null_count:
        raise InvalidName("counter names are strings, and one is missing")
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy().astype(np.int64)


def as_deltas(deltas: int | Sequence[int] | Ints | pa.Array, rows: int) -> Ints:
    """One int64 for each row.

    >>> as_deltas(5, 2), as_deltas([1, -1], 2)
    (array([5, 5]), array([ 1, -1]))
    """
    if isinstance(deltas, int | np.integer) and not isinstance(deltas, bool):
        if not INT64_MIN <= deltas <= INT64_MAX:
            raise InvalidInput(f"a delta is an int64, not {shown(deltas)}")
        return np.full(rows, deltas, dtype=np.int64)
    if isinstance(deltas, pa.ChunkedArray):
        deltas = deltas.combine_chunks()
    if isinstance(deltas, pa.Array):
        deltas = unwrapped(deltas)
        if not pa.types.is_integer(deltas.type) or deltas.null_count:
            raise InvalidInput(f"deltas are whole numbers, none missing, not {deltas.type}")
        found = deltas.to_numpy()
    else:
        try:
            found = np.asarray(deltas)
        except ValueError as error:  # Lists of different lengths are no column.
            raise InvalidInput(f"deltas are whole numbers within int64: {error}") from error
    if found.ndim != 1 or (found.dtype.kind not in "iu" and len(found)):
        raise InvalidInput(f"deltas are whole numbers within int64, not {found.dtype}")
    if len(found) != rows:
        raise InvalidInput(f"{rows} names and {len(found)} deltas were given")
    if found.dtype == np.uint64 and (found > INT64_MAX).any():
        raise InvalidInput("a delta is an int64, and one is greater")
    return found.astype(np.int64)


def added(deltas: Ints, at: Ints, count: int) -> Ints | None:
    """The sum of the deltas of each name; None if one is none that int64 holds.

    >>> added(np.array([1, 2, 3]), np.array([0, 1, 0]), 2)
    array([4, 2])
    """
    sums = np.zeros(count, dtype=np.int64)
    if not len(deltas):
        return sums
    if count == len(deltas):
        sums[at] = deltas
        return sums
    np.add.at(sums, at, deltas)
    # The sum of so many at most cannot wrap; else floats say where it might have.
    if int(np.abs(deltas.astype(np.float64)).max()) * len(deltas) < 2**62:
        return sums
    coarse = np.bincount(at, weights=deltas.astype(np.float64), minlength=count)
    for number in np.flatnonzero(np.abs(coarse) >= 2.0**62).tolist():
        exact = sum(deltas[at == number].tolist())
        if not INT64_MIN <= exact <= INT64_MAX:
            return None
    return sums
