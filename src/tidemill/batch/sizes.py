"""The bounds on one push, checked before anything is written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tidemill.errors import TooLarge
from tidemill.limits import BATCH_BYTES_MAX, BATCH_ROWS_MAX, ITEM_BYTES_MAX, MIB

_types = pa.types


def check_rows(rows: int) -> None:
    """Raise `TooLarge` if one push cannot have so many rows.

    >>> check_rows(2_000)
    """
    if rows > BATCH_ROWS_MAX:
        raise TooLarge(f"one push has at most {BATCH_ROWS_MAX} rows: push in parts")


def check_sizes(payload: pa.RecordBatch) -> None:
    """Raise `TooLarge` if the batch, or one of its rows, is over its bound.

    >>> check_sizes(pa.record_batch({"value": pa.array([b"a"])}))
    """
    check_rows(payload.num_rows)
    # All buffers whole are at least what the rows hold, and much cheaper to add up.
    if payload.get_total_buffer_size() <= ITEM_BYTES_MAX:
        return
    size = payload.nbytes
    if size > BATCH_BYTES_MAX:
        raise TooLarge(
            f"one push holds at most {BATCH_BYTES_MAX // MIB} MiB, this one {-(-size // MIB)} MiB: "
            "push in parts"
        )
    if size > ITEM_BYTES_MAX:
        sizes = np.zeros(payload.num_rows, np.int64)
        for column in payload.columns:
            sizes += row_bytes(column)
        row = int(np.argmax(sizes))
        if sizes[row] > ITEM_BYTES_MAX:
            raise TooLarge(
                f"row {row} holds {sizes[row]} bytes; one item may hold {ITEM_BYTES_MAX // MIB} "
                "MiB: divide it, or store it elsewhere and push where it is"
            )


def row_bytes(array: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """How many bytes of payload each row holds, whatever the nesting.

    >>> row_bytes(pa.array([b"abc", None, b""]))
    array([3, 0, 0])
    """
    kind = array.type
    sizes: np.ndarray[Any, np.dtype[np.int64]]
    if _types.is_binary(kind) or _types.is_string(kind):
        import pyarrow.compute as pc  # noqa: PLC0415 (slow to import, and hardly needed)

        lengths = pc.binary_length(array).fill_null(0)
        sizes = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    elif _types.is_struct(kind):
        sizes = np.zeros(len(array), np.int64)
        for child in array.flatten():
            sizes += row_bytes(child)
    elif _types.is_list(kind) or _types.is_map(kind):
        offsets = array.offsets.to_numpy()
        if _types.is_map(kind):
            children = row_bytes(array.keys) + row_bytes(array.items)
        else:
            children = row_bytes(array.values)
        upto = np.concatenate(([0], np.cumsum(children)))
        sizes = upto[offsets[1:]] - upto[offsets[:-1]]
    else:
        sizes = np.full(len(array), max(1, kind.bit_width // 8), np.int64)
    return sizes
