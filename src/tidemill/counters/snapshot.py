"""The values of all counters at one moment, as columns."""

from __future__ import annotations

import pyarrow as pa

from tidemill.errors import CounterOverflow
from tidemill.limits import INT64_MAX, INT64_MIN

SNAPSHOT_SCHEMA = pa.schema(
    [
        pa.field("node", pa.string(), nullable=False),  # which looked
        pa.field("counter", pa.string(), nullable=False),
        pa.field("value", pa.int64(), nullable=False),
    ]
)


def fitting(values: dict[str, int]) -> tuple[dict[str, int], list[str]]:
    """The counters whose values a column holds, and the names of the others.

    >>> fitting({"visits": 7, "bytes": 2**63})
    ({'visits': 7}, ['bytes'])
    """
    found = {name: value for name, value in values.items() if INT64_MIN <= value <= INT64_MAX}
    return found, [name for name in values if name not in found]


def snapshot_of(node: str, values: dict[str, int]) -> pa.RecordBatch:
    """A row for each counter. Raises `CounterOverflow` if one has a value that is no int64.

    >>> snapshot_of("node-1", {"visits": 7}).to_pylist()
    [{'node': 'node-1', 'counter': 'visits', 'value': 7}]
    """
    _, beyond = fitting(values)
    if beyond:
        raise CounterOverflow(
            f"the counter {beyond[0]!r} has left the range of int64: no column holds "
            f"{values[beyond[0]]}; bring it back, or delete it"
        )
    columns = [
        pa.repeat(pa.scalar(node), len(values)),
        pa.array(values.keys(), pa.string()),
        pa.array(values.values(), pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SNAPSHOT_SCHEMA)
