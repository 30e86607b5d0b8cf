"""Prepared statements for PyMySQL, which has none: a blob travels as it is, and is not parsed.

Two commands of the protocol, both since MySQL 4.1:

    prepare   0x16, the statement              ─▶  0x00, id u32, columns u16, parameters u16, …,
                                                   then a description of each, which we skip
    execute   0x17, id u32, flags u8, 1 u32,   ─▶  what any statement answers
              a bit per parameter that is null,
              1 u8, a type u16 for each, values

Parameters here are integers and bytes, never null. Statements that give rows back are left to
PyMySQL: the text protocol is no slower for them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pymysql

from tidemill.errors import Bug

_PREPARE = 0x16
_EXECUTE = 0x17
_INTEGER = b"\x08\x00"  # eight bytes, signed
_BLOB = b"\xfc\x00"
_PREPARED = struct.Struct("<xIHH")
_EXECUTION = struct.Struct("<IBI")

Argument = int | bytes | Sequence[bytes | memoryview]


class Prepared:
    """A statement that the server keeps, for as long as the connection lasts."""

    def __init__(self, connection: pymysql.Connection[Any], statement: str) -> None:
        driver: Any = connection  # the methods used below are not public
        self._connection = driver
        self._connection._execute_command(_PREPARE, statement)
        answer = self._connection._read_packet().get_all_data()
        self._id, columns, self._parameters = _PREPARED.unpack_from(answer)
        if columns:
            raise Bug("a prepared statement that gives back rows")
        if self._parameters:
            for _ in range(self._parameters + 1):  # a description each, then the end of them
                self._connection._read_packet()

    def execute(self, arguments: Sequence[Argument]) -> int:
        """Run it once; returns how many rows it changed.

        A sequence of bytes is one blob, in parts.
        """
        if len(arguments) != self._parameters:
            raise Bug(f"{len(arguments)} arguments for {self._parameters} parameters")
        types = []
        values: list[bytes | memoryview] = []
        for argument in arguments:
            if isinstance(argument, int):
                types.append(_INTEGER)
                values.append(argument.to_bytes(8, "little", signed=True))
            else:
                types.append(_BLOB)
                parts = [argument] if isinstance(argument, bytes) else argument
                values.append(_length(sum(len(part) for part in parts)))
                values.extend(parts)
        head = _EXECUTION.pack(self._id, 0, 1) + bytes(-(-len(arguments) // 8)) + b"\x01"
        self._connection._execute_command(_EXECUTE, b"".join([head, *types, *values]))
        return int(self._connection._read_query_result())


def _length(count: int) -> bytes:
    """A length in front of bytes, as the protocol writes it.

    >>> _length(5), _length(300).hex()
    (b'\\x05', 'fc2c01')
    """
    if count < 251:
        return bytes([count])
    if count < 1 << 16:
        return b"\xfc" + count.to_bytes(2, "little")
    if count < 1 << 24:
        return b"\xfd" + count.to_bytes(3, "little")
    return b"\xfe" + count.to_bytes(8, "little")
