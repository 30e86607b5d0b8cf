"""A log: rows with dense numbers, one publisher, any number of independent consumers."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.batch import LogBatch, project
from tidemill.closing import Closing
from tidemill.errors import InvalidInput, Trimmed
from tidemill.limits import (
    INT64_MAX,
    PENDING_SEND_BYTES_MAX,
    PREFETCH_BYTES,
    READ_BYTES_MAX,
    RECEIVED_ROWS_MAX,
)
from tidemill.log.archive.archived import Archived
from tidemill.log.contract import Ends
from tidemill.log.home import Home
from tidemill.log.opening import open_store
from tidemill.log.publisher import Publisher
from tidemill.log.receiver import Receiver
from tidemill.log.retention import Retention
from tidemill.log.start import Start, start_seq
from tidemill.log.tiered import open_archiver, verify_archive
from tidemill.shown import shown

if TYPE_CHECKING:
    from tidemill.files.report import OnProgress
    from tidemill.log.archive.archiver import Archiver
    from tidemill.log.archive.report import ArchiveReport


class Log(Closing):
    """An endless row of rows, in a folder or wherever the address says.

    Rows are numbered 1, 2, 3, … as they are sent. One publisher sends, any number of named
    consumers receive, each at its own pace.

    >>> import tidemill as tm
    >>> log = tm.Log("memory:doc-log")
    >>> with log.publisher() as out:
    ...     out.send([b"one", b"two"])
    Receipt(first=1, last=2, count=2, durability='buffered')
    >>> with log.receiver("billing", follow=False) as receiver:
    ...     for batch in receiver:
    ...         print(batch.rows())
    ...         batch.ack()
    [b'one', b'two']
    >>> log.read(2).rows(), log.ends(), log.consumers()
    ([b'two'], Ends(first=1, next=3), {'billing': 2})
    >>> log.close()
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,  # None: what is recorded; for a new log, `value: binary`
        **options: Any,  # of the kind of log that the address names
    ) -> None:
        self._store = open_store(address, schema=schema, **options)
        self._home = Home("the log")
        self._attached: weakref.WeakSet[Publisher | Receiver] = weakref.WeakSet()
        self._archiver: Archiver | None = None  # of the last pass, if that went well

    @property
    def schema(self) -> pa.Schema:
        """The schema of the payload: its newest version."""
        return self._store.versions.newest

    def publisher(
        self,
        *,
        producer: str | None = None,  # the name under which numbers are remembered
        pending_bytes_max: int = PENDING_SEND_BYTES_MAX,  # on their way before senders wait
    ) -> Publisher:
        """The right to send, which ends that of every older publisher.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-log-publisher") as log:
        ...     old, new = log.publisher(), log.publisher()
        ...     new.send(b"a").first
        1
        """
        publisher = Publisher(self._store, producer=producer, pending_bytes_max=pending_bytes_max)
        self._attached.add(publisher)
        return publisher

    def receiver(
        self,
        consumer: str,
        *,
        start: Start = "earliest",  # of a new consumer; one that exists goes on where it was
        follow: bool = True,  # False: end at the last row there is now
        rows_max: int = RECEIVED_ROWS_MAX,  # of one batch
        prefetch_bytes: int = PREFETCH_BYTES,  # read ahead at most
    ) -> Receiver:
        """Receive as a consumer, from behind the last row that it acked.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-log-receiver") as log:
        ...     receipt = log.publisher().send([b"a", b"b", b"c"])
        ...     [batch.rows() for batch in log.receiver("audit", start=2, follow=False)]
        [[b'b', b'c']]
        """
        receiver = Receiver(
            self._store,
            consumer,
            start=start,
            follow=follow,
            rows_max=rows_max,
            prefetch_bytes=prefetch_bytes,
        )
        self._attached.add(receiver)
        return receiver

    def read(self, start: Start = "earliest", rows_max: int = 1_000) -> LogBatch:
        """Up to `rows_max` rows from `start` on; fewer only if there are no more, or from about
        256 MiB on.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-log-read") as log:
        ...     receipt = log.publisher().send([b"a", b"b", b"c"])
        ...     log.read(2, rows_max=1).rows(), len(log.read(4))
        ([b'b'], 0)
        """
        if not isinstance(rows_max, int) or isinstance(rows_max, bool) or rows_max < 1:
            raise InvalidInput(f"rows_max is a whole number from 1 on, not {shown(rows_max)}")
        rows_max = min(rows_max, INT64_MAX)
        while True:
            try:
                return self._read(start_seq(self._store, start), rows_max)
            except Trimmed:
                if isinstance(start, int):
                    raise
                # What was the first row was given up since; another is by now.

    def _read(self, at: int, rows_max: int) -> LogBatch:
        found: list[LogBatch] = []
        size = 0
        while rows_max and size < READ_BYTES_MAX:
            more = self._store.read(at, rows_max=rows_max, bytes_max=READ_BYTES_MAX - size)
            if not more:
                break
            newest = more[-1].schema
            if found and not found[-1].schema.equals(newest):
                # A publisher has added columns meanwhile.
                found = [
                    LogBatch(project(one.payload, newest), one.first_seq, one.times)
                    for one in found
                ]
            found += more
            at = more[-1].next_seq
            rows_max -= sum(len(batch) for batch in more)
            size += sum(batch.payload.nbytes for batch in more)
        return LogBatch.concat(found) if found else LogBatch.empty(self.schema, at)

    def ends(self) -> Ends:
        """The number of the first row, and the one that the next row will get.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-log-ends") as log:
        ...     log.ends()
        Ends(first=1, next=1)
        """
        return self._store.ends()

    def consumers(self) -> dict[str, int]:
        """The pointers of all consumers, by name.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-log-consumers") as log:
        ...     receiver = log.receiver("billing")
        ...     log.consumers()
        {'billing': 0}
        """
        return {name: state.pointer for name, state in self._store.consumers().items()}

    def remove_consumer(self, consumer: str) -> None:
        """End a consumer: nothing is kept for it any more. One that is not there changes nothing.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-log-remove") as log:
        ...     log.receiver("billing").close()
        ...     log.remove_consumer("billing")
        ...     log.consumers()
        {}
        """
        self._store.remove_consumer(consumer)

    def trim(
        self,
        before: int | datetime | None = None,  # rows below a number, or from before a time
        *,
        older_than: timedelta | None = None,  # rows written longer ago than this
        bytes_max: int | None = None,  # all but the newest that take so much, hot and archived
        consumed: bool = False,  # rows that every consumer has acked
        force: bool = False,  # whatever consumers have yet to ack
    ) -> int:
        """Give up rows for ever, also those in the archive; returns the first that is left.

        A row goes if any of the limits says so. Stops at the slowest consumer, unless forced.

        >>> import tidemill as tm
        >>> from datetime import timedelta
        >>> with tm.Log("memory:doc-log-trim") as log:
        ...     receipt = log.publisher().send([b"a", b"b", b"c"])
        ...     log.trim(before=3), log.read().rows()
        ...     log.trim(older_than=timedelta(days=365), bytes_max=10**12, consumed=True)
        (3, [b'c'])
        3
        """
        retention = Retention(
            before=before, older_than=older_than, bytes_max=bytes_max, consumed=consumed
        )
        if retention.is_empty:
            raise InvalidInput(
                "say which rows to trim: before is the number of a row, or a datetime; there are "
                "older_than, bytes_max and consumed as well"
            )
        return self._store.trim(retention.end(self._store), force=force)

    def archive(
        self,
        url: str | os.PathLike[str] | None = None,  # None: where the log was archived before
        *,
        before: int | datetime | None = None,  # rows below a number, or from before a time
        older_than: timedelta | None = None,  # rows written longer ago than this
        bytes_max: int | None = None,  # all but the newest rows that take so much where they are
        consumed: bool = False,  # rows that every consumer has acked
        sweep: bool = False,  # look for what crashes left in the whole archive
        on_progress: Callable[[Archived], None] = lambda _: None,  # after each segment
    ) -> Archived:
        """Move rows to an archive, a folder or `s3://bucket/prefix`, as Parquet files.

        All rows that are there now, or those that any of the limits names. Each file is read back
        and compared with the rows before the log gives up its own. The log writes down where its
        archive is; whoever reads it does not notice where rows are. Another archiver fences this
        one, which raises `tm.Fenced`; nothing is lost, whatever is raised.

        >>> import tempfile, tidemill as tm
        >>> with tm.Log("memory:doc-log-archive") as log:
        ...     receipt = log.publisher().send([b"a", b"b", b"c"])
        ...     done = log.archive(tempfile.mkdtemp())
        ...     done.rows, done.segments, log.read().rows(), log.ends()
        (3, 1, [b'a', b'b', b'c'], Ends(first=1, next=4))
        """
        retention = Retention(
            before=before, older_than=older_than, bytes_max=bytes_max, consumed=consumed
        )
        end = retention.end_of_hot(self._store)
        archiver, self._archiver = self._archiver, None
        swept = 0
        if archiver is None or sweep or not archiver.is_at(url):
            archiver = open_archiver(self._store, url)
            swept = archiver.swept
        if sweep:
            swept += archiver.sweep(everywhere=True)
        done = archiver.run(end, on_progress)
        # After a failure the next pass begins with a new epoch, which lets it sweep what is left.
        self._archiver = archiver
        return done._replace(swept=swept)

    def verify_archive(
        self,
        *,
        deep: bool = False,  # read every byte, not just the ends of files
        repair: bool = False,  # remove what crashes left
        on_progress: OnProgress | None = None,  # called after each segment
    ) -> ArchiveReport:
        """Verify the archive and how it fits the log; changes nothing unless told to repair.

        A log opened at the address of an archive is that archive alone.

        >>> import tempfile, tidemill as tm
        >>> with tm.Log("memory:doc-log-verify") as log:
        ...     receipt = log.publisher().send([b"a", b"b", b"c"])
        ...     done = log.archive(tempfile.mkdtemp())
        ...     report = log.verify_archive(deep=True)
        >>> report.rows, report.worst
        (3, None)
        """
        return verify_archive(self._store, deep=deep, repair=repair, on_progress=on_progress)

    def close(self) -> None:
        """Close the publishers and receivers that were made here, and let go; twice does no harm.

        >>> import tidemill as tm
        >>> log = tm.Log("memory:doc-log-close")
        >>> log.close()
        """
        if not self._home.is_here:
            return
        with ExitStack() as closing:
            closing.callback(self._store.close)
            for one in list(self._attached):
                closing.callback(one.close)

    def __repr__(self) -> str:
        return f"<Log at {self._store.place!r}>"
