"""The short way in: a record batch that already is what a frame holds.

Whoever pushes at full speed pushes such batches, so they skip the long way through `to_rows`, but
none of its checks.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidemill.limits import BATCH_ROWS_MAX, ITEM_BYTES_MAX


class ReadyForm:
    """Recognises the batches that need nothing done to them.

    >>> form = ReadyForm(pa.schema([pa.field("key", pa.int64(), nullable=False)]))
    >>> form.keys_of(pa.record_batch({"key": [1, 2]})), form.keys_of([1, 2])
    (array([1, 2]), None)
    """

    __slots__ = ("_nullable", "_required", "_schema")

    def __init__(self, schema: pa.Schema) -> None:
        """`schema` is that of the bodies of the queue's frames."""
        self._schema = schema
        # Most tables say that all of their columns may hold nulls, whether any does or not.
        self._nullable = pa.schema([field.with_nullable(True) for field in schema])
        required = [index for index, field in enumerate(schema) if not field.nullable]
        self._required = [index for index in required if index]  # beside the key, which is one

    def keys_of(self, data: object) -> NDArray[np.int64] | None:
        """The keys of `data` if it can be encoded as it is: the right columns, valid, within all
        bounds.
        """
        if not isinstance(data, pa.RecordBatch):
            return None
        given = data.schema
        if not given.equals(self._nullable) and not given.equals(self._schema):
            return None
        if not 0 < data.num_rows <= BATCH_ROWS_MAX or data.get_total_buffer_size() > ITEM_BYTES_MAX:
            return None
        try:
            data.validate(full=True)
        except pa.ArrowException:
            # The long way finds it again, and says what is wrong.
            return None
        for index in self._required:
            if data.column(index).null_count:
                return None
        keys = data.column(0)
        return None if keys.null_count else int64_values(keys)


def int64_values(array: pa.Array) -> NDArray[np.int64]:
    """The values of an array of int64 without nulls, sharing its memory.

    >>> int64_values(pa.array([4, 5, 6])[1:]).tolist()
    [5, 6]
    """
    return np.frombuffer(array.buffers()[1], np.int64, len(array), 8 * array.offset)
