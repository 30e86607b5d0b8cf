"""Prepared statements for PyMySQL, which has none: a blob travels as it is, and is not parsed.

Two commands of the protocol, both since MySQL 4.1:

    prepare   0x16, the statement              ─▶  0x00, id u32, columns u16, parameters u16, …,
                                                   then a description of each, which we skip
    execute   0x17, id u32, flags u8, 1 u32,   ─▶  what any statement answers
              a bit per parameter that is null,
              1 u8, a type u16 for each, values

Parameters here are integers and bytes, never null. Statements that give rows back are left to
PyMySQL: the text protocol is no slower for them.

A server reads one command after another, so that several can be sent at once (`run_together`). It
runs each whatever became of those before, which whoever writes the statements has to bear in mind.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pymysql

from tidemill.errors import Bug
from tidemill.log.sql.connection import Argument

_QUERY = 0x03
_PREPARE = 0x16
_EXECUTE = 0x17
TOGETHER_BYTES_MAX = 8 << 20  # of a command that is sent with others; a packet holds 16 MiB
_INTEGER = b"\x08\x00"  # eight bytes, signed
_BLOB = b"\xfc\x00"
_PREPARED = struct.Struct("<xIHH")
_EXECUTION = struct.Struct("<IBI")


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
        """Run it once; returns how many rows it changed."""
        self._connection._execute_command(_EXECUTE, self._body(arguments))
        return int(self._connection._read_query_result())

    def command(self, arguments: Sequence[Argument]) -> bytes:
        """What `run_together` sends to run it once."""
        return _command(_EXECUTE, self._body(arguments))

    def _body(self, arguments: Sequence[Argument]) -> bytes:
        """The values of the parameters; a sequence of bytes is one blob, in parts."""
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
        return b"".join([head, *types, *values])


def query_command(statement: str) -> bytes:
    """What `run_together` sends to run a statement that has no parameters."""
    return _command(_QUERY, statement.encode())


def run_together(
    connection: pymysql.Connection[Any], commands: Sequence[bytes]
) -> list[int | pymysql.err.Error]:
    """Send commands without waiting in between, then read the answers.

    Returns for each how many rows it changed, or why the server refused. Raises only if the
    connection is lost: then nobody knows which of them were run. Whoever depends on the first one
    hears of its refusal all the same.
    """
    driver: Any = connection
    if driver._sock is None:
        raise pymysql.err.InterfaceError(0, "the connection is closed")
    driver._result = None
    driver._write_bytes(b"".join(commands))
    answers: list[int | pymysql.err.Error] = []
    for _ in commands:
        driver._next_seq_id = 1  # each command counts its packets anew
        try:
            answers.append(int(driver._read_query_result()))
        except pymysql.err.Error as refusal:
            if connection.open:
                answers.append(refusal)
            elif answers and isinstance(answers[0], pymysql.err.Error):
                raise answers[
                    0
                ] from refusal  # A packet that is too large ends the connection, too.
            else:
                raise
    return answers


def _command(code: int, body: bytes) -> bytes:
    """One packet, the first of its command.

    >>> _command(3, b"COMMIT")
    b'\\x07\\x00\\x00\\x00\\x03COMMIT'
    """
    if len(body) > TOGETHER_BYTES_MAX:
        raise Bug(f"a command of {len(body)} bytes must be sent by itself")
    return struct.pack("<IB", len(body) + 1, code) + body


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
