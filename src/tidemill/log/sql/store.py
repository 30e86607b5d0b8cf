"""A log on a server, opened."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import pyarrow as pa

from tidemill.batch import DEFAULT, Layout, LogBatch, SchemaVersions
from tidemill.batch.schema import check_payload_schema
from tidemill.clock import Clock, SystemClock
from tidemill.errors import Closed, Corrupt, InvalidInput
from tidemill.log.contract import (
    Capabilities,
    ConsumerClaim,
    ConsumerState,
    Ends,
    LogStore,
)
from tidemill.log.home import Home
from tidemill.log.sql import consumers, reading, trimming
from tidemill.log.sql.address import Address
from tidemill.log.sql.connection import Busy, Connection, Duplicate
from tidemill.log.sql.dialect import dialect_of
from tidemill.log.sql.pool import Pool
from tidemill.log.sql.settings import ServerSettings
from tidemill.log.sql.statements import BEGIN, COMMIT
from tidemill.log.sql.tables import open_tables
from tidemill.log.sql.throttle import check_rate
from tidemill.log.sql.writer import ServerWriter
from tidemill.names import check_name

RETRY_S = 60.0
POLL_S = 0.005
POLL_S_MAX = 0.1

T = TypeVar("T")


class ServerLog(LogStore):
    """One user of a log on a server. Opening it makes its tables if they are not there.

    `parallelism` is the number of shards, and of connections that write; None takes what the log
    has, 4 if it is new. `writes_per_second_max` bounds the writes of each, while groups grow; None
    or 0 is no bound. `retry_s` is how long a call tries again when the server is away.
    """

    capabilities = Capabilities(
        persistent=True, many_processes=True, poll_s=POLL_S, poll_s_max=POLL_S_MAX
    )

    def __init__(
        self,
        url: str,
        *,
        schema: pa.Schema | None = None,
        parallelism: int | None = None,
        writes_per_second_max: float | None = None,
        retry_s: float = RETRY_S,
        create: bool = True,
        clock: Clock | None = None,
    ) -> None:
        self._address = Address.parse(url)
        _check_options(parallelism, writes_per_second_max, retry_s)
        if schema is not None:
            check_payload_schema(schema)  # What is refused leaves no tables behind.
        self.place = self._address.place
        self._clock = SystemClock() if clock is None else clock
        self._writes_per_second_max = writes_per_second_max
        self._home = Home("the log")
        self._is_closed = False
        self._known = 0  # the last row that is known to be there; it stays readable or is trimmed
        self._writers: weakref.WeakSet[ServerWriter] = weakref.WeakSet()
        self._watchers: set[Callable[[], None]] = set()
        self._pool = Pool(self._address, retry_s)
        dialect, name = dialect_of(self._address), self._address.name
        try:
            self.statements = self._pool.run(
                lambda connection: open_tables(
                    connection, dialect, name, parallelism, create=create
                )
            )
            self._versions = self._pool.run(lambda connection: self._evolved(connection, schema))
        except BaseException:
            self._pool.close()
            raise

    @property
    def versions(self) -> SchemaVersions:
        self._check_open()
        return self._versions

    def versions_now(self) -> SchemaVersions:
        self._versions = self.run(self._read_versions)
        return self._versions

    def settings(self) -> ServerSettings:
        """What the server promises, asked for anew."""
        return self.run(lambda connection: connection.settings())

    def is_on_server_of(self, address: Address) -> bool:
        """Whether one transaction can reach both; a server under two names counts as two."""
        mine = self._address
        return (mine.scheme, mine.host, mine.port, mine.unix_socket) == (
            address.scheme,
            address.host,
            address.port,
            address.unix_socket,
        )

    def ends(self) -> Ends:
        return self.run(lambda connection: reading.find_ends(connection, self.statements))

    def read(self, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        def work(connection: Connection) -> list[LogBatch]:
            ends, following = reading.find_places(connection, self.statements, start)
            self._known = max(self._known, ends.next - 1)
            readable = min(rows_max, ends.next - start)
            places = reading.within(following, start, readable, bytes_max)
            data = reading.fetch(connection, self.statements, places)
            if data is None:
                # Removed between the two looks; the next one says by whom.
                raise Busy("rows were removed while they were read")
            return self._decode(connection, places, data, start, readable)

        return self.run(work)

    def _decode(
        self,
        connection: Connection,
        places: list[reading.Place],
        data: list[bytes],
        start: int,
        rows_max: int,
    ) -> list[LogBatch]:
        def decoded(versions: SchemaVersions) -> list[LogBatch]:
            return reading.decode_places(
                places,
                data,
                start,
                rows_max=rows_max,
                versions=versions,
                statements=self.statements,
            )

        known = self._versions
        try:
            return decoded(known)
        except Corrupt:
            # It may be a version that was added since.
            self._versions = self._read_versions(connection)
            if self._versions == known:
                raise
        return decoded(self._versions)

    def seq_at(self, time_us: int) -> int:
        return self.run(lambda connection: reading.seq_at(connection, self.statements, time_us))

    def layout(self, start: int, end: int) -> Layout:
        def work(connection: Connection) -> Layout:
            return reading.layout(connection, self.statements, start, end)

        return self.run(work)

    def watch(self, wakeup: Callable[[], None]) -> Callable[[], None]:
        """Tells of the rows of writers made here; others are found by looking."""
        self._check_open()
        self._watchers.add(wakeup)
        return lambda: self._watchers.discard(wakeup)

    def _tell(self) -> None:
        for wakeup in list(self._watchers):
            wakeup()

    def claim(self) -> ServerWriter:
        self.versions_now()  # What is sent from here on may have columns that others have added.
        writer = ServerWriter(
            self._address,
            self.statements,
            self._pool,
            clock=self._clock,
            writes_per_second_max=self._writes_per_second_max,
            on_shown=self._tell,
        )
        self._writers.add(writer)
        return writer

    def consumers(self) -> dict[str, ConsumerState]:
        return self.run(lambda connection: consumers.listed(connection, self.statements))

    def claim_consumer(self, name: str, *, start: int) -> ConsumerClaim:
        self._check_open()
        check_name(name, what="consumer")
        return self.run(
            lambda connection: consumers.claimed(connection, self.statements, name, start)
        )

    def move_pointer(self, claim: ConsumerClaim, pointer: int) -> None:
        self.run(
            lambda connection: consumers.moved(
                connection, self.statements, claim, pointer, known=self._known
            )
        )

    def check_claim(self, claim: ConsumerClaim) -> None:
        self.run(lambda connection: consumers.check(connection, self.statements, claim))

    def remove_consumer(self, name: str) -> None:
        self._check_open()
        check_name(name, what="consumer")
        self.run(lambda connection: connection.execute(self.statements.remove, name.encode()))

    def trim(self, before: int, *, force: bool = False) -> int:
        first = self.run(
            lambda connection: trimming.decided(connection, self.statements, before, force=force)
        )
        self.run(lambda connection: trimming.swept(connection, self.statements, first))
        return first

    def begin_at(self, first: int) -> None:
        place = self.place
        self.run(lambda connection: trimming.begun(connection, self.statements, first, place))

    def release(self, before: int) -> None:
        self.run(lambda connection: trimming.swept(connection, self.statements, before))

    def notes(self) -> dict[str, str]:
        rows = self.run(lambda connection: connection.query(self.statements.notes))
        return {name.decode(): value.decode() for name, value in rows}

    def set_note(self, name: str, value: str, *, expected: str | None) -> bool:
        self._check_open()
        key, new = check_name(name, what="note").encode(), value.encode()

        tries = 0

        def work(connection: Connection) -> bool:
            nonlocal tries
            tries += 1
            if expected is None:
                done = connection.execute(self.statements.add_note, key, new)
            else:
                done = connection.execute(self.statements.set_note, new, key, expected.encode())
            if not done and tries > 1:
                # A try whose answer was lost may have done it.
                return connection.query(self.statements.note, key) == [(new,)]
            return bool(done)

        return self.run(work)

    def close(self) -> None:
        if not self._home.is_here:
            return  # The connections are the parent's.
        self._is_closed = True
        self._pool.closing.set()  # Whoever waits for a server that is away stops waiting.
        for writer in list(self._writers):
            writer.close()
        self._pool.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the log was closed; open it again")
        self._home.check()

    def run(self, work: Callable[[Connection], T]) -> T:
        """Do work that may be repeated with a connection, until the server answers."""
        self._check_open()
        return self._pool.run(work)

    def _read_versions(self, connection: Connection) -> SchemaVersions:
        rows = connection.query(self.statements.schemas)
        return _parsed([description for _, description in rows])

    def _evolved(self, connection: Connection, schema: pa.Schema | None) -> SchemaVersions:
        """The versions, with what `schema` adds stored durably; of a new log, its first."""
        connection.execute(BEGIN)
        rows = connection.query(self.statements.schemas + " FOR UPDATE")
        if not rows:
            versions = SchemaVersions([DEFAULT if schema is None else schema])
        else:
            found = _parsed([description for _, description in rows])
            versions = found if schema is None else found.evolve(schema)
        descriptions = versions.to_json()
        for number in range(len(rows), len(descriptions)):
            text = json.dumps(descriptions[number]).encode()
            try:
                connection.execute(self.statements.add_schema, number, text)
            except Duplicate as cause:
                raise Busy("somebody else has added a schema version just now") from cause
        connection.execute(COMMIT)
        return versions


def _check_options(
    parallelism: object, writes_per_second_max: float | None, retry_s: object
) -> None:
    """Refuse what is no option's value before anything is done."""
    if parallelism is not None and type(parallelism) is not int:
        raise InvalidInput(f"parallelism is a whole number, not {parallelism!r}")
    if not isinstance(retry_s, (int, float)) or not 0 <= retry_s < float("inf"):
        raise InvalidInput(f"retry_s is a number of seconds from 0 on, not {retry_s!r}")
    check_rate(writes_per_second_max)


def _parsed(descriptions: list[bytes]) -> SchemaVersions:
    try:
        data: list[Any] = [json.loads(description) for description in descriptions]
    except ValueError as cause:
        raise Corrupt(f"a stored schema version is no JSON: {cause}") from cause
    return SchemaVersions.from_json(data)
