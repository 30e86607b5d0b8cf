"""A body that is written from where its columns lie, without copying them together first.

What Arrow's writer would put in front of the columns is made from the skeleton of its messages; the
columns follow as they are, each padded to 8 bytes. The bytes are those that Arrow would have
written. It pays for large batches of plain columns, which is what whoever pushes at full speed
pushes; everything else goes through Arrow's writer.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from tidemill.batch.ipc import body_shape
from tidemill.batch.skeleton import write_by_skeleton

_PAD = [bytes(count) for count in range(8)]
_types = pa.types


class Gatherer:
    """Gathers the bodies of one schema."""

    __slots__ = ("_kinds", "_skeleton")

    def __init__(self, schema: pa.Schema) -> None:
        """`schema` is that of the bodies, as `body_schema` gives it."""
        self._skeleton = body_shape(schema).skeleton
        self._kinds = [_kind(field.type) for field in schema]

    def parts(self, columns: list[pa.Array]) -> list[Any] | None:
        """The body in parts, or None if these columns have to go through Arrow's writer."""
        if self._skeleton is None:
            return None
        rows = len(columns[0])
        nodes: list[int] = []
        numbers: list[int] = []
        parts: list[Any] = [b""]
        at = 0
        sizes: tuple[int, ...]
        for column, kind in zip(columns, self._kinds, strict=True):
            if kind is None or column.offset or column.null_count:
                return None
            nodes += (rows, 0)
            numbers += (at, 0)
            buffers = column.buffers()
            if kind:
                sizes = (kind * rows,)
            else:
                offsets = memoryview(buffers[1]).cast("i")
                if offsets[0]:
                    return None
                sizes = (4 * (rows + 1), offsets[rows])
            for buffer, size in zip(buffers[1:], sizes, strict=True):
                numbers += (at, size)
                if size:
                    parts.append(buffer if len(buffer) == size else buffer.slice(0, size))
                    padding = -size % 8
                    if padding:
                        parts.append(_PAD[padding])
                    at += size + padding
        parts[0] = write_by_skeleton(self._skeleton, at, rows, nodes, numbers)
        return parts


def _kind(kind: pa.DataType) -> int | None:
    """Bytes of each value, 0 for values of any length, None for what is not plain."""
    if _types.is_binary(kind) or _types.is_string(kind):
        return 0
    if _types.is_integer(kind) or _types.is_floating(kind) or _types.is_timestamp(kind):
        return int(kind.bit_width) // 8
    return None
