"""Records on Redis: each is a hash of its data, its generation, and when it was written.

    tidemill:alerts:meta    g  6148914691236517205     d  …     t  1700000000000000 (µs)

A write is a script, which Redis runs in one step. Scripts compare generations as text, and compute
nothing with them, because their numbers have 53 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemill.errors import Corrupt, NoAccess, StorageFailed
from tidemill.limits import MIB, RECORD_BYTES_MAX
from tidemill.records.address import RecordAddress
from tidemill.records.bounds import check_record_name, check_record_size, chunked
from tidemill.records.generations import new_generation
from tidemill.records.links import GARBLED, Links, Lost
from tidemill.records.redis_durability import SETTING_NAMES, problems_of
from tidemill.records.redis_link import RedisLink
from tidemill.records.store import ManyAtOnce, Record, Write

_PREFIX = "tidemill:"
_CHUNK_BYTES = 4 * MIB  # of records that are sent in one go
_CHUNK_RECORDS = 1_000

# What each gives back is whether it wrote. `TIME` is the clock of Redis, in seconds and µs.
_PUT = """
local now = redis.call('TIME')
redis.call('HSET', KEYS[1], 'd', ARGV[1], 'g', ARGV[2],
           't', string.format('%d%06d', now[1], now[2]))
return 1
"""
_CREATE = "if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end" + _PUT
_REPLACE = "if redis.call('HGET', KEYS[1], 'g') ~= ARGV[3] then return 0 end" + _PUT
_DELETE = """
if redis.call('HGET', KEYS[1], 'g') ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

Command = Sequence[str | bytes | int]
Row = tuple[bytes | None, bytes | None, bytes | None]  # generation, data, written at
T = TypeVar("T")


class RedisStore(ManyAtOnce):
    """The records of one database of a Redis server, in the keys that start with `tidemill:`."""

    record_bytes_max = RECORD_BYTES_MAX  # Redis takes 512 MiB, and does nothing else meanwhile

    def __init__(self, address: RecordAddress) -> None:
        self.place = address.place
        self._links: Links[RedisLink] = Links(
            self.place, lambda within_s: RedisLink(address, within_s), address.timeout_s
        )

    def get_many(self, names: Sequence[str]) -> list[Record | None]:
        """These records, with one round trip."""
        # The clock is read first: an age that is too short costs patience, and nothing else.
        asked: list[Command] = [["TIME"]]
        asked += [["HMGET", _key(name), "g", "d", "t"] for name in names]
        if len(asked) == 1:
            return []
        now_us, found = self._read(asked, _rows)
        return [self._record(name, row, now_us) for name, row in zip(names, found, strict=True)]

    def write_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Each of these writes, with one round trip, or some if they are large."""
        prepared = [self._prepared(write) for write in writes]
        written: list[int | None] = []
        sizes = [len(write.data) for write in writes]
        for chunk in chunked(prepared, sizes, _CHUNK_BYTES, _CHUNK_RECORDS):
            answers = self._write([command for command, _ in chunk])
            written += [
                generation if is_written else None
                for is_written, (_, generation) in zip(answers, chunk, strict=True)
            ]
        return written

    def delete(self, name: str, generation: int) -> bool:
        """Delete a record if it has this generation; False if it has another, or is gone."""
        [is_deleted] = self._write([["EVAL", _DELETE, 1, _key(name), generation]])
        return is_deleted

    def problems(self) -> tuple[str, ...]:
        """Which settings of the server void what it confirms; each says what to do."""
        try:
            found = self._read([["CONFIG", "GET", name] for name in SETTING_NAMES], _settings)
        except (NoAccess, StorageFailed) as refusal:
            return (
                f"the settings of {self.place} cannot be read, so that nothing is known about its "
                f"durability: {refusal}",
            )
        return problems_of(found)

    def close(self) -> None:
        """Let go of connections; closing again does nothing."""
        self._links.close()

    def _read(self, asked: Sequence[Command], understand: Callable[[list[Any]], T]) -> T:
        return self._links.read(lambda link, within_s: _call(link, asked, within_s, understand))

    def _write(self, asked: Sequence[Command]) -> list[bool]:
        return self._links.write(lambda link, within_s: _call(link, asked, within_s, _flags))

    def _prepared(self, write: Write) -> tuple[Command, int]:
        """The command for a write, and the generation that the record has after it."""
        check_record_size(write.name, len(write.data), self.place, self.record_bytes_max)
        key = _key(write.name)
        generation = new_generation()
        if write.generation is None:
            return ["EVAL", _CREATE, 1, key, write.data, generation], generation
        return ["EVAL", _REPLACE, 1, key, write.data, generation, write.generation], generation

    def _record(self, name: str, row: Row, now_us: int) -> Record | None:
        generation, data, written_us = row
        if generation is None and data is None and written_us is None:
            return None
        try:
            if generation is None or data is None or written_us is None:
                raise ValueError("a field of it is missing")
            return Record(data, int(generation), now_us - int(written_us))
        except ValueError as cause:
            raise Corrupt(f"record {name!r} of {self.place} is not one of ours") from cause


def _call(
    link: RedisLink,
    asked: Sequence[Command],
    within_s: float,
    understand: Callable[[list[Any]], T],
) -> T:
    answers = link.call_many(asked, within_s=within_s)
    try:
        return understand(answers)
    except GARBLED as cause:
        raise Lost(f"Redis answered what none does: {cause!r}") from cause


def _rows(answers: list[Any]) -> tuple[int, list[Row]]:
    """The time in µs, and what the fields of each record are."""
    (seconds, micros), *found = answers
    return int(seconds) * 1_000_000 + int(micros), [_row(*fields) for fields in found]


def _row(*fields: Any) -> Row:
    generation, data, written_us = fields
    if not all(field is None or isinstance(field, bytes) for field in fields):
        raise TypeError("a field is no bytes")
    return generation, data, written_us


def _flags(answers: list[Any]) -> list[bool]:
    """Whether each script did what it is for."""
    known = {0: False, 1: True}
    return [known[answer] for answer in answers]


def _settings(answers: list[Any]) -> dict[str, str]:
    """What each of some settings is, of those that are there."""
    return {row[0].decode(): row[1].decode() for row in answers if row}


def _key(name: str) -> str:
    return _PREFIX + check_record_name(name)
