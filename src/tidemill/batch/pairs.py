"""The items of a body as Python pairs, made some at a time.

Whoever pops a few items at a time takes them from one body, call by call. To make Python objects of
a single item costs Arrow as much as of dozens, so that the next ones are made along with it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa

FEW_ROWS = 16  # no more than this are worth making others ahead
_AHEAD_ROWS = 64
_AHEAD_BYTES = 16 * 1024

Made: TypeAlias = list[tuple[int, Any]]


def make_pairs(body: pa.RecordBatch, value_at: int) -> Made:
    """All items of a body whose column `value_at` is the whole payload.

    >>> make_pairs(pa.record_batch({"key": [1, 2], "value": [b"a", b"b"]}), 1)
    [(1, b'a'), (2, b'b')]
    """
    values = body.column(value_at).to_pylist()
    return list(zip(body.column(0).to_pylist(), values, strict=True))


def is_plain(body: pa.RecordBatch, value_at: int) -> bool:
    """Whether the payload is a column `value` alone.

    >>> is_plain(pa.record_batch({"key": [1], "value": [b"a"]}), 1)
    True
    """
    return body.num_columns == value_at + 1 and body.schema.names[value_at] == "value"


class Pairs:
    """Shared by the batches that are parts of one body.

    >>> pairs = Pairs(pa.record_batch({"key": [1, 2, 3], "value": [b"a", b"b", b"c"]}), 1)
    >>> pairs.part(1, 2), pairs.part(2, 3)
    ([(2, b'b')], [(3, b'c')])
    """

    __slots__ = ("_ahead", "_body", "_made", "_value_at")

    def __init__(self, body: pa.RecordBatch, value_at: int) -> None:
        self._body = body
        self._value_at = value_at
        self._ahead = -1  # rows to make at a time; 0: none but those that are asked for
        # (where they begin, the pairs): one reference, for several threads may ask.
        self._made: tuple[int, Made] = (0, [])

    def part(self, start: int, stop: int) -> Made | None:
        """The items from `start` to `stop`; None if they have to be made in another way."""
        first, made = self._made
        if start < first or stop > first + len(made):
            if self._ahead < 0:
                self._ahead = self._choose_ahead()
            if not self._ahead:
                return None
            first = start
            made = make_pairs(
                self._body.slice(start, max(stop - start, self._ahead)), self._value_at
            )
            self._made = first, made
        return made[start - first : stop - first]

    def _choose_ahead(self) -> int:
        body, at = self._body, self._value_at
        # Only bytes, which nobody can change: a dict must not be handed out twice.
        if not is_plain(body, at) or not pa.types.is_binary(body.schema.types[at]):
            return 0
        row_bytes = body.get_total_buffer_size() // max(body.num_rows, 1) + 1
        ahead = min(_AHEAD_ROWS, _AHEAD_BYTES // row_bytes)
        return ahead if ahead > 1 else 0
