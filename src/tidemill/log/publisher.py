"""The publisher of a log: the one that may write to it."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from concurrent.futures import Future

from tidemill.batch import SchemaVersions
from tidemill.clock import Clock, SystemClock
from tidemill.closing import Closing
from tidemill.errors import Bug, InvalidInput
from tidemill.files.queue.receipt import Receipt
from tidemill.limits import PENDING_SEND_BYTES_MAX, SHARED_SEND_BYTES_MAX
from tidemill.log.contract import LogFrame, LogStore
from tidemill.log.frames import encode_rows
from tidemill.log.producer import Producer
from tidemill.log.send_line import SendLine
from tidemill.log.sends import Send, joined, payload_of, plain_values, takes_values
from tidemill.log.turn import resolve
from tidemill.names import check_name
from tidemill.shown import shown


class Publisher(Closing):
    """Sends rows to a log, each exactly once. Made by `Log.publisher()`.

    All methods may be called from many threads. Use it in `with`, or call `close()`.

    >>> import tidemill as tm
    >>> with tm.Log("memory:doc-publisher") as log, log.publisher() as out:
    ...     out.send([b"one", b"two"])
    ...     future = out.send_soon(b"three")
    ...     out.flush()
    ...     future.result().first
    Receipt(first=1, last=2, count=2, durability='buffered')
    3
    """

    def __init__(
        self,
        store: LogStore,
        *,
        producer: str | None = None,
        pending_bytes_max: int = PENDING_SEND_BYTES_MAX,
        clock: Clock | None = None,
    ) -> None:
        # What can be refused is, before the claim fences whoever publishes.
        if producer is not None:
            check_name(producer, what="producer")
        if type(pending_bytes_max) is not int or pending_bytes_max < 0:
            raise InvalidInput(
                f"pending_bytes_max is a whole number from 0 on, not {shown(pending_bytes_max)}"
            )
        self._writer = store.claim()
        try:
            self._versions: SchemaVersions = store.versions
            self._takes_values = takes_values(self._versions.newest)
            self._producer = None if producer is None else Producer(producer, self._writer)
            self._line = SendLine(
                self._writer,
                self._encode,
                producer=self._producer,
                bytes_max=pending_bytes_max,
                clock=SystemClock() if clock is None else clock,
                ends=store.ends(),
                durability="synced" if store.capabilities.persistent else "buffered",
            )
        except BaseException:
            self._writer.close()
            raise

    @property
    def epoch(self) -> int:
        """The number by which a newer publisher is told from an older one."""
        return self._writer.epoch

    @property
    def last_number(self) -> int | None:
        """The last number of this producer that is published; None if there is none.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-last-number") as log:
        ...     out = log.publisher(producer="loader")
        ...     receipt = out.send(b"a", number=7)
        ...     out.last_number
        7
        """
        return None if self._producer is None else self._producer.last_number

    def send(self, rows: object, *, number: int | None = None, digest: bytes = b"") -> Receipt:
        """Write rows, and return once they are durable and readable.

        `rows` is one row or many: bytes, dicts, protobuf messages, `tm.Sourced`, or a table. A
        publisher made with `producer` takes a `number`: sending the same one again gives the same
        receipt, and writes nothing; `digest` says what is in it, to be compared then.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-send", schema=None) as log:
        ...     out = log.publisher(producer="loader")
        ...     out.send([b"a", b"b"], number=1) == out.send([b"a", b"b"], number=1)
        ...     log.ends()
        True
        Ends(first=1, next=3)
        """
        send = self._prepare(rows, number, digest)
        send.wakeup = threading.Lock()
        send.wakeup.acquire()
        try:
            if self._line.submit(send):
                self._line.wait(send)
        except BaseException as cause:
            self._line.leave(send, cause)
            raise
        if send.failure is not None:
            raise copy.copy(send.failure) from send.failure
        if send.receipt is None:
            raise Bug("a send ended without a receipt")
        return send.receipt

    def send_soon(
        self, rows: object, *, number: int | None = None, digest: bytes = b""
    ) -> Future[Receipt]:
        """Have rows written, and return a future of the receipt at once.

        Waits only if more than `pending_bytes_max` bytes are on their way already. Sends of one
        thread are numbered in their order. A future that nobody looks at holds nobody up. What one
        calls back runs in a thread that writes, and may send, flush and close; to wait there for
        other threads is to keep what they send soon waiting.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-soon") as log, log.publisher() as out:
        ...     out.send_soon([b"a", b"b"]).result().last
        2
        """
        return self._start(self._prepare(rows, number, digest))

    def flush(self) -> None:
        """Return once everything sent before is written, or has failed: its futures say which.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-flush") as log, log.publisher() as out:
        ...     future = out.send_soon(b"a")
        ...     out.flush()
        ...     future.done()
        True
        """
        self._line.flush()

    def close(self) -> None:
        """Write what is on its way, and let another publish; twice does no harm.

        >>> import tidemill as tm
        >>> with tm.Log("memory:doc-close") as log:
        ...     out = log.publisher()
        ...     out.close()
        ...     out.close()
        """
        self._line.close()

    def __repr__(self) -> str:
        return f"<Publisher with epoch {self.epoch}{', closed' if self._line.is_closing else ''}>"

    def _prepare(self, rows: object, number: int | None, digest: bytes) -> Send:
        """Everything that can be done, and refused, before it is this send's turn."""
        if self._producer is not None or number is not None or digest:
            Producer.check(self._producer, number, digest)
        # What could be refused for its size is encoded here, so that it fails alone.
        shared_max = min(SHARED_SEND_BYTES_MAX, self._writer.frame_bytes_max // 4)
        if self._takes_values:
            values = plain_values(rows, bytes_max=shared_max)
            if values is not None:
                return Send(values=values, number=number, digest=digest)
        send = Send(payload_of(rows, self._versions.newest), number=number, digest=digest)
        if send.size > shared_max and send.count:
            send.frames = self._encode([send])
        return send

    def _start(self, send: Send) -> Future[Receipt]:
        """Put a send in line that nobody waits for."""
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()  # What is on its way cannot be called back.
        send.future = future
        try:
            if self._line.submit(send):
                self._line.call_worker()
            else:
                resolve(send)
        except BaseException as cause:
            self._line.leave(send, cause)
            raise
        return future

    def _encode(self, sends: Sequence[Send]) -> list[LogFrame]:
        return encode_rows(
            joined(sends, self._versions.newest),
            self._versions.newest_fingerprint,
            bytes_max=self._writer.frame_bytes_max,
            setting=self._writer.frame_bytes_setting,
        )
