"""A log for asyncio: what waits is awaited."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidemill.aio.cancellation import settle
from tidemill.aio.publisher import Publisher
from tidemill.aio.receiver import Receiver
from tidemill.aio.twin import Twin
from tidemill.batch import LogBatch
from tidemill.limits import (
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


class Log(Twin[plain.Log]):
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
        super().__init__(lambda: plain.Log(address, schema=schema, **options))
        self._address = address

    @property
    def schema(self) -> pa.Schema:
        """The schema of the payload: its newest version."""
        return self._opened().schema

    async def publisher(
        self, *, producer: str | None = None, pending_bytes_max: int = PENDING_SEND_BYTES_MAX
    ) -> Publisher:
        """The right to send, which ends that of every older publisher."""
        await settle()
        made = await self._pool().run_waiting(
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
        await settle()
        return await self._pool().run_waiting(
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

    def __repr__(self) -> str:
        return f"<aio.Log at {str(self._address)!r}>"
