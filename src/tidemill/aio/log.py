"""A log for asyncio: what waits is awaited."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

import pyarrow as pa

from tidemill.aio.cancellation import settle
from tidemill.aio.publisher import Publisher
from tidemill.aio.receiver import Receiver
from tidemill.aio.threads import Threads
from tidemill.batch import LogBatch
from tidemill.closing import AsyncClosing
from tidemill.errors import Closed
from tidemill.limits import (
    AIO_THREADS_MAX,
    PENDING_SEND_BYTES_MAX,
    PREFETCH_BYTES,
    RECEIVED_ROWS_MAX,
)
from tidemill.log import log as plain
from tidemill.log.archive.archived import Archived
from tidemill.log.contract import Ends
from tidemill.log.start import Start

if TYPE_CHECKING:
    from tidemill.log.archive.report import ArchiveReport

P = ParamSpec("P")
T = TypeVar("T")


class Log(AsyncClosing):
    """The twin of `tm.Log`: the same options and methods, awaited.

    >>> import asyncio, tidemill as tm
    >>> async def main():
    ...     async with tm.aio.Log("memory:doc-aio-log") as log:
    ...         async with await log.publisher() as out:
    ...             await out.send([b"one", b"two"])
    ...         async with await log.receiver("billing", follow=False) as receiver:
    ...             async for batch in receiver:
    ...                 print(batch.rows())
    ...                 batch.ack()
    ...         return await log.consumers()
    >>> asyncio.run(main())
    [b'one', b'two']
    {'billing': 2}
    """

    def __init__(
        self,
        address: str | os.PathLike[str],
        *,
        schema: pa.Schema | None = None,
        **options: Any,
    ) -> None:
        self._address = address
        self._open_log = lambda: plain.Log(address, schema=schema, **options)
        self._log: plain.Log | None = None
        self._threads: Threads | None = None
        self._closing: asyncio.Future[None] | None = None

    async def open(self) -> Self:
        """Open the log, and make it if it is not there; `async with` does the same.

        >>> import asyncio, tidemill as tm
        >>> async def main():
        ...     log = await tm.aio.Log("memory:doc-aio-open").open()
        ...     await log.close()
        >>> asyncio.run(main())
        """
        if self._threads is not None:
            raise Closed(f"{self!r} was opened before; make another handle")
        self._threads = Threads(AIO_THREADS_MAX)
        try:
            self._log = await self._threads.run(self._open_log)
        except BaseException:
            threads, self._threads = self._threads, None
            await threads.end()
            raise
        return self

    @property
    def schema(self) -> pa.Schema:
        """The schema of the payload: its newest version."""
        return self._opened().schema

    async def publisher(
        self, *, producer: str | None = None, pending_bytes_max: int = PENDING_SEND_BYTES_MAX
    ) -> Publisher:
        """The right to send, which ends that of every older publisher."""
        made = await self._run(
            self._opened().publisher, producer=producer, pending_bytes_max=pending_bytes_max
        )
        return Publisher(made, self._pool())

    async def receiver(
        self,
        consumer: str,
        *,
        start: Start = "earliest",
        follow: bool = True,
        rows_max: int = RECEIVED_ROWS_MAX,
        prefetch_bytes: int = PREFETCH_BYTES,
    ) -> Receiver:
        """Receive as a consumer, from behind the last row that it acked."""
        made = await self._run(
            self._opened().receiver,
            consumer,
            start=start,
            follow=follow,
            rows_max=rows_max,
            prefetch_bytes=prefetch_bytes,
        )
        return Receiver(made, self._pool())

    async def read(self, start: Start = "earliest", rows_max: int = 1_000) -> LogBatch:
        """Up to `rows_max` rows from `start` on; fewer only if there are no more."""
        return await self._run(self._opened().read, start, rows_max)

    async def ends(self) -> Ends:
        """The number of the first row, and the one that the next row will get."""
        return await self._run(self._opened().ends)

    async def consumers(self) -> dict[str, int]:
        """The pointers of all consumers, by name."""
        return await self._run(self._opened().consumers)

    async def remove_consumer(self, consumer: str) -> None:
        """End a consumer: nothing is kept for it any more."""
        await self._run(self._opened().remove_consumer, consumer)

    async def trim(
        self,
        before: int | datetime | None = None,
        *,
        older_than: timedelta | None = None,
        bytes_max: int | None = None,
        consumed: bool = False,
        force: bool = False,
    ) -> int:
        """Give up rows for ever, also those in the archive; returns the first that is left."""
        return await self._run(
            self._opened().trim,
            before,
            older_than=older_than,
            bytes_max=bytes_max,
            consumed=consumed,
            force=force,
        )

    async def archive(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        before: int | datetime | None = None,
        older_than: timedelta | None = None,
        bytes_max: int | None = None,
        consumed: bool = False,
        sweep: bool = False,
    ) -> Archived:
        """Move rows to an archive, a folder or `s3://bucket/prefix`, as Parquet files."""
        return await self._run(
            self._opened().archive,
            url,
            before=before,
            older_than=older_than,
            bytes_max=bytes_max,
            consumed=consumed,
            sweep=sweep,
        )

    async def verify_archive(self, *, deep: bool = False, repair: bool = False) -> ArchiveReport:
        """Verify the archive and how it fits the log; changes nothing unless told to repair."""
        return await self._run(self._opened().verify_archive, deep=deep, repair=repair)

    async def close(self) -> None:
        """Close the publishers and receivers that were made here, and let go."""
        if self._threads is None or self._log is None:
            return
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close(self._log, self._threads))
        # Whoever is cancelled meanwhile does not leave it half closed.
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return await self.open()

    def __repr__(self) -> str:
        return f"<aio.Log at {str(self._address)!r}>"

    async def _close(self, log: plain.Log, threads: Threads) -> None:
        try:
            await threads.begin(log.close)
        finally:
            await threads.end()

    def _opened(self) -> plain.Log:
        if self._log is None:
            raise Closed(f"{self!r} is not open: use `async with`, or await open()")
        if self._closing is not None:
            raise Closed(f"{self!r} was closed; open it again to use it")
        return self._log

    def _pool(self) -> Threads:
        if self._threads is None:
            raise Closed(f"{self!r} is not open: use `async with`, or await open()")
        return self._threads

    async def _run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        await settle()
        return await self._pool().run(call, *args, **options)
