"""What a caller pushes, as keys and payload.

    pairs, bytes, dicts ── literals ──┐
                                      ├──▶  to_rows  ──▶  Rows(keys, payload)
    Arrow, polars, pandas ── tables ──┘

The key of tabular data is its column `key`, or the one that the caller names; one that is named
and also in the schema of the queue stays in the payload, so that `push(table, key="ts")` gives
`ts` back in its own type. Rows without a key column have no keys: the queue gives them the time of
the push.

What a queue gave can be pushed as it is: the `seq` and `time` of a batch are left behind, because
the other queue gives its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from tidemill.batch.keys import Keys
from tidemill.batch.literals import ALLOWED, from_list
from tidemill.batch.sizes import check_rows, check_sizes
from tidemill.batch.tables import KeysAndPayload, from_batch, from_foreign
from tidemill.errors import InvalidInput, InvalidKey
from tidemill.limits import BATCH_ROWS_MAX
from tidemill.shown import shown


@dataclass(frozen=True, slots=True)
class Rows:
    """One push in normal form: int64 keys (None if none were given) and the payload.

    >>> rows = to_rows([(3, b"c"), (1, b"a")], schema=None)
    >>> rows.keys.tolist(), rows.payload.num_rows, len(rows)
    ([3, 1], 2, 2)
    """

    keys: Keys | None
    payload: pa.RecordBatch

    def __len__(self) -> int:
        return int(self.payload.num_rows)


def to_rows(data: object, *, schema: pa.Schema | None, key: str | None = None) -> Rows:
    """Bring any accepted form into keys and payload.

    `schema` is the queue's, in normal form; None takes the data's own. `key` names the column that
    holds the keys. Nothing of the caller's is changed or sorted.

    >>> import pyarrow as pa
    >>> from tidemill.batch.schema import DEFAULT
    >>> rows = to_rows([{"id": 7, "city": "Ghent"}], schema=None, key="id")
    >>> rows.keys.tolist(), rows.payload.to_pylist()
    ([7], [{'id': 7, 'city': 'Ghent'}])
    >>> table = pa.table({"key": [2, 1], "value": [b"b", b"a"]})
    >>> to_rows(table, schema=DEFAULT).payload.to_pylist()
    [{'value': b'b'}, {'value': b'a'}]
    """
    if key is not None and not isinstance(key, str):
        raise InvalidKey(f"the column of the keys is named by a string, not by {shown(key)}")
    if type(data) is list:
        check_rows(len(data))
        keys, payload = from_list(data, schema, key)
    elif isinstance(data, pa.RecordBatch):
        keys, payload = from_batch(data, schema, key)
    else:
        keys, payload = _from_other(data, schema, key)
    check_sizes(payload)
    return Rows(keys, payload)


def _from_other(data: object, schema: pa.Schema | None, key: str | None) -> KeysAndPayload:
    found = from_foreign(data, schema, key)
    if found is not None:
        return found
    if isinstance(data, Mapping):
        raise InvalidInput(f"a mapping is ambiguous: {ALLOWED}; of columns: pyarrow.table(mapping)")
    if isinstance(data, (str, bytes, bytearray, memoryview)) or not isinstance(data, Iterable):
        raise InvalidInput(f"one {type(data).__name__} is no batch: {ALLOWED}")
    if isinstance(data, tuple) and len(data) == 2 and type(data[0]) is int:
        # As rows they would be a number and a payload: nobody means that.
        raise InvalidInput(f"one pair is no batch: push([(key, payload)]); {ALLOWED}")
    rows = list(islice(data, BATCH_ROWS_MAX + 1))
    check_rows(len(rows))
    return from_list(rows, schema, key)
