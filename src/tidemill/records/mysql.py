"""Records on MySQL or MariaDB: each is a row of the table `tidemill_records`.

    name           generation             written_us          data
    alerts:meta    6148914691236517205    1700000000000000    …

A write is one statement that names the generation; InnoDB runs it in one step, and has it on disk
before it answers. `written_us` is by the clock of the server, as is the age of a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from tidemill.errors import Corrupt, StorageFailed
from tidemill.limits import MIB, RECORD_BYTES_MAX
from tidemill.log.mysql.connection import MySQLConnection
from tidemill.log.sql import connection as sql
from tidemill.log.sql.address import Address
from tidemill.log.sql.badges import end_holders, new_badge
from tidemill.log.sql.connection import Argument, Duplicate
from tidemill.records.address import RecordAddress
from tidemill.records.bounds import check_record_name, check_record_size, chunked
from tidemill.records.generations import new_generation
from tidemill.records.links import Busy, Links, Lost
from tidemill.records.store import ManyAtOnce, Record, Write

_TABLE = "tidemill_records"
_MAKE = f"""
CREATE TABLE IF NOT EXISTS {_TABLE} (
  name VARBINARY(128) NOT NULL PRIMARY KEY,
  generation BIGINT NOT NULL,
  written_us BIGINT NOT NULL,
  data LONGBLOB NOT NULL
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC
"""
_NOW_US = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
_GET = f"SELECT name, generation, {_NOW_US} - written_us, data FROM {_TABLE} WHERE name IN %s"
_CREATE = f"INSERT INTO {_TABLE} (data, generation, name, written_us) VALUES (?, ?, ?, {_NOW_US})"
_REPLACE = (
    f"UPDATE {_TABLE} SET data = ?, generation = ?, written_us = {_NOW_US} "
    "WHERE name = ? AND generation = ?"
)
_DELETE = f"DELETE FROM {_TABLE} WHERE name = ? AND generation = ?"
_PACKET_SPARE_BYTES = 4096  # of a statement, beside the data
_CHUNK_BYTES = 4 * MIB  # of records that are sent in one go
_CHUNK_RECORDS = 100

Step = tuple[str, Sequence[Argument]]
T = TypeVar("T")


class MySQLLink:
    """One connection, whose errors are those of links."""

    def __init__(self, address: Address) -> None:
        with _translated():
            self._connection = MySQLConnection(address, new_badge())

    @property
    def badge(self) -> str:
        return self._connection.badge

    @property
    def is_stale(self) -> bool:
        return self._connection.is_stale

    def run(self, work: Callable[[MySQLConnection], T]) -> T:
        """Do what needs the connection."""
        with _translated():
            return work(self._connection)

    def close(self) -> None:
        self._connection.close()


class MySQLStore(ManyAtOnce):
    """The records of one database."""

    def __init__(self, address: RecordAddress) -> None:
        self.place = address.place
        [(host, port)] = address.hosts
        self._address = Address(
            scheme="mysql",
            host=host,
            port=port,
            user=address.user,
            password=address.password,
            database=address.home,
            name=address.name,
            unix_socket=address.unix_socket,
            ssl_ca=address.ssl_ca,
            timeout_s=address.timeout_s,
        )
        self._has_table = False
        # Badges of connections that fell silent in the middle of a write.
        self._lost: list[str] = []
        self._links: Links[MySQLLink] = Links(self.place, self._connect, address.timeout_s)
        settings = self._links.read(lambda link, _: link.run(MySQLConnection.settings))
        bytes_max = settings.packet_bytes_max - _PACKET_SPARE_BYTES
        self.record_bytes_max = max(min(bytes_max, RECORD_BYTES_MAX), 0)

    def get_many(self, names: Sequence[str]) -> list[Record | None]:
        """These records, with one round trip for many of them."""
        keys = [check_record_name(name).encode() for name in names]
        found: dict[bytes, Record] = {}
        for chunk in chunked(keys, [0] * len(keys), _CHUNK_BYTES, _CHUNK_RECORDS):
            for key, generation, age_us, data in self._read(chunk):
                found[key] = Record(data, int(generation), int(age_us))
        return [found.get(key) for key in keys]

    def write_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Each of these writes, a transaction of its own, with one round trip for many of them."""
        prepared = [self._prepared(write) for write in writes]
        written: list[int | None] = []
        sizes = [len(write.data) for write in writes]
        for chunk in chunked(prepared, sizes, _CHUNK_BYTES, _CHUNK_RECORDS):
            changed = self._run([step for step, _ in chunk])
            written += [
                generation if is_written else None
                for is_written, (_, generation) in zip(changed, chunk, strict=True)
            ]
        return written

    def delete(self, name: str, generation: int) -> bool:
        """Delete a record if it has this generation; False if it has another, or is gone."""
        return self._run([(_DELETE, (check_record_name(name).encode(), generation))])[0]

    def problems(self) -> tuple[str, ...]:
        """Which settings of the server void what it confirms; each says what to do."""
        return self._links.read(lambda link, _: link.run(MySQLConnection.settings)).problems

    def close(self) -> None:
        """Let go of connections; closing again does nothing."""
        self._links.close()

    def _prepared(self, write: Write) -> tuple[Step, int]:
        """The statement for a write, and the generation that the record has after it."""
        check_record_size(write.name, len(write.data), self.place, self.record_bytes_max)
        key = check_record_name(write.name).encode()
        data = bytes(write.data)
        generation = new_generation()
        if write.generation is None:
            return (_CREATE, (data, generation, key)), generation
        return (_REPLACE, (data, generation, key, write.generation)), generation

    def _read(self, keys: Sequence[bytes]) -> list[tuple[Any, ...]]:
        return self._links.read(lambda link, _: link.run(lambda to: to.query(_GET, keys)))

    def _run(self, steps: Sequence[Step]) -> list[bool]:
        """Whether each of the statements, which commit by themselves, changed a row."""
        if len(steps) == 1:
            return [self._run_one(steps[0])]
        answers = self._links.write(
            lambda link, _: self._noting_loss(
                link, lambda to: to.commit_together(steps)[: len(steps)]
            )
        )
        changed = []
        for step, answer in zip(steps, answers, strict=True):
            if isinstance(answer, sql.Busy):  # It did nothing, because of others.
                changed.append(self._run_one(step))
            elif isinstance(answer, Exception) and not isinstance(answer, Duplicate):
                raise answer
            else:
                changed.append(answer == 1)
        return changed

    def _run_one(self, step: Step) -> bool:
        def run(connection: MySQLConnection) -> bool:
            try:
                return connection.execute_prepared(*step) == 1
            except Duplicate:
                return False

        return self._links.write(lambda link, _: self._noting_loss(link, run))

    def _noting_loss(self, link: MySQLLink, work: Callable[[MySQLConnection], T]) -> T:
        try:
            return link.run(work)
        except Lost:
            self._lost.append(link.badge)
            raise

    def _connect(self, _within_s: float) -> MySQLLink:
        link = MySQLLink(self._address)
        try:
            # What was under way on a connection that fell silent ends with it, so that it does not
            # keep others from the record.
            lost, self._lost = self._lost, []
            link.run(lambda connection: end_holders(connection, lost))
            if not self._has_table:
                link.run(self._make_table)
                self._has_table = True
        except BaseException:
            link.close()
            raise
        return link

    def _make_table(self, connection: MySQLConnection) -> None:
        found = connection.tables([_TABLE])
        if not found:
            connection.execute(_MAKE)
            found = connection.tables([_TABLE])
        problem = found.get(_TABLE)
        if problem is None:
            raise Corrupt(f"table {_TABLE} of {self.place} was made and is not there")
        if problem:
            raise StorageFailed(f"table {_TABLE} of {self.place} {problem}")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sql.Lost as cause:
        raise Lost(str(cause)) from cause
    except sql.Busy as cause:
        raise Busy(str(cause)) from cause
