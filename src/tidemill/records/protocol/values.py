"""What a user puts into a ring, as bytes and back.

Bytes stay as they are. Anything else is what JSON can say: None, booleans, numbers, strings, lists,
and dicts with strings for keys; it comes back equal to what was put in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from tidemill.errors import Corrupt, InvalidInput, TooLarge
from tidemill.limits import SCHEMA_DEPTH_MAX
from tidemill.shown import shown

# What a ring holds: bytes, or what JSON can say.
Value: TypeAlias = Any

BYTES = 0
JSON = 1


class Entry(NamedTuple):
    """An entry of a ring: where it stands, and what was put in.

    >>> Entry(7, b"x").offset
    7
    """

    offset: int
    value: Value


class Taken(NamedTuple):
    """Consecutive entries as they are stored.

    >>> Taken(5, bytes([0, 1]), [b"a", b"1"]).entries()
    [Entry(offset=5, value=b'a'), Entry(offset=6, value=1)]
    """

    first: int
    kinds: bytes
    values: list[bytes]

    @property
    def end(self) -> int:
        """The offset behind the last one."""
        return self.first + len(self.values)

    def entries(self) -> list[Entry]:
        """The same as they were put in."""
        offsets = range(self.first, self.end)
        return list(map(Entry, offsets, decode_values(self.kinds, self.values)))


def several(values: object) -> list[Value]:
    """What is to go in together; what is one value would go in as its letters, bytes or keys.

    >>> several(iter([b"one", {"two": 2}]))
    [b'one', {'two': 2}]
    >>> several(b"one")
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: enqueue_many takes a list of values, not a bytes: that is for \
enqueue
    """
    is_one = isinstance(values, str | bytes | bytearray | memoryview | Mapping)
    if is_one or not isinstance(values, Iterable):
        kind = type(values).__name__
        raise InvalidInput(
            f"enqueue_many takes a list of values, not a {kind}: that is for enqueue"
        )
    return list(values)


def encode_values(values: Iterable[Value], entry_bytes_max: int) -> tuple[bytes, list[bytes]]:
    """The kind of each value, and its bytes.

    >>> encode_values([b"a", {"id": 1}], 100)
    (b'\\x00\\x01', [b'a', b'{"id":1}'])
    """
    kinds = bytearray()
    encoded = []
    for value in values:
        if isinstance(value, bytes | bytearray | memoryview):
            kinds.append(BYTES)
            data = bytes(value)
        else:
            kinds.append(JSON)
            data = _to_json(value)
        if len(data) > entry_bytes_max:
            raise TooLarge(
                f"an entry has {len(data)} bytes, and this ring takes {entry_bytes_max}: make it "
                "with fewer slots_per_record"
            )
        encoded.append(data)
    return bytes(kinds), encoded


def decode_values(kinds: bytes, values: list[bytes]) -> list[Value]:
    """What was put in.

    >>> decode_values(bytes([0, 1]), [b"a", b'{"id":1}'])
    [b'a', {'id': 1}]
    """
    if not any(kinds):
        return values
    return [_decode(kind, data) for kind, data in zip(kinds, values, strict=True)]


def _decode(kind: int, data: bytes) -> Value:
    if kind == BYTES:
        return data
    if kind != JSON:
        raise Corrupt(f"an entry of a ring is of the unknown kind {kind}")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Corrupt(f"an entry of a ring is not the JSON that it should be: {error}") from error


def _to_json(value: Value) -> bytes:
    _check_json(value, 0)
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return text.encode()
    except ValueError as error:  # NaN, infinities, half of a surrogate pair
        raise InvalidInput(f"an entry of a ring cannot be said in JSON: {error}") from error


def _check_json(value: Value, depth: int) -> None:
    """Refuse what JSON would turn into something else: a tuple, a key that is a number."""
    if value is None or type(value) in (bool, int, float, str):
        return
    if depth >= SCHEMA_DEPTH_MAX:
        raise InvalidInput(f"an entry of a ring is nested more than {SCHEMA_DEPTH_MAX} deep")
    if type(value) is list:
        for item in value:
            _check_json(item, depth + 1)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise InvalidInput(
                    f"a key in an entry of a ring must be a string, not {shown(key)}"
                )
            _check_json(item, depth + 1)
    else:
        kind = type(value).__name__
        if depth:
            raise InvalidInput(f"within an entry of a ring is what JSON can say; {kind} is not")
        raise InvalidInput(f"an entry of a ring is bytes, or what JSON can say; {kind} is neither")
