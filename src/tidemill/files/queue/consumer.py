"""A consumer: reads every item that is pushed, in the order of arrival, and says how far it is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from tidemill.batch import Batch
from tidemill.closing import Closing
from tidemill.errors import Closed, InvalidInput, Locked
from tidemill.files.disk.storage import storage_errors
from tidemill.files.queue.arrivals import Arrived, read_arrivals
from tidemill.files.sharing.lock import FileLock
from tidemill.files.sharing.pointers import (
    NOT_BEGUN,
    move,
    open_pointer,
    read_slot,
    remove_pointer,
)
from tidemill.files.upkeep.queue_core import QueueCore
from tidemill.limits import READ_BYTES_MAX
from tidemill.names import check_name
from tidemill.numbers import whole_number
from tidemill.shown import shown

Start = Literal["latest", "earliest"] | int


class Consumer(Closing):
    """Reads items by arrival number, whatever the queue and its forks have popped.

    Made by `PriorityQueue.consumer()`, also of a queue that is open to be read only. Items wait on
    disk until every consumer has acked them. One handle at a time uses a consumer.

    >>> import tempfile, tidemill as tm
    >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
    >>> billing = queue.consumer("billing")
    >>> receipt = queue.push([(3, b"c")]), queue.push([(1, b"a")]), queue.pop(2)
    >>> batch = billing.read(10)
    >>> batch.rows(), billing.pointer
    ([(3, b'c'), (1, b'a')], 0)
    >>> billing.ack(batch.last.seq)
    >>> len(billing.read(10)), billing.pointer
    (0, 2)
    >>> queue.close()
    """

    def __init__(self, core: QueueCore, name: str, start: Start = "latest") -> None:
        check_name(name, what="consumer")
        start = _checked(start)
        self._core = core
        self._name = name
        self._mutex = threading.Lock()
        self._is_closed = False
        core.view.check_open()
        view = core.view
        with storage_errors("opening a consumer of", view.path):
            lock = open_pointer(view.fs, view.path, name)
            if lock is None:
                raise Locked(
                    f"consumer {name!r} of {view.path} is used by another handle; close it there, "
                    "or wait until its process has ended"
                )
            self._lock: FileLock = lock
            try:
                self._pointer = self._begin(start)
            except BaseException:
                lock.release()
                raise
        self._ahead = Arrived(Batch.empty(view.payload_schema), self._pointer)
        view.attached.add(self)

    @property
    def name(self) -> str:
        return self._name

    @property
    def pointer(self) -> int:
        """The arrival number up to which everything is done."""
        return self._pointer

    def read(self, rows_max: int = 1_000) -> Batch:
        """The next items behind the pointer, in the order of arrival; the same ones again until
        they are acked. No more than about 256 MiB of them, whatever `rows_max` is.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...     audit = queue.consumer("audit")
        ...     receipt = queue.push([(2, b"b"), (1, b"a")])
        ...     audit.read(1).rows(), audit.read().seqs.to_pylist()
        ([(1, b'a')], [1, 2])
        """
        wanted_rows = whole_number(rows_max)
        if wanted_rows is None or wanted_rows < 1:
            raise InvalidInput(f"rows_max is a whole number from 1 on, not {shown(rows_max)}")
        view = self._core.view
        with self._held():
            arrived = view.arrived
            is_older = not self._ahead.batch.schema.equals(view.payload_schema)
            if self._ahead.until > arrived or is_older:
                # The owner took back what it had written, or another one has added columns.
                self._pointer = min(self._pointer, arrived)
                self._ahead = Arrived(Batch.empty(view.payload_schema), self._pointer)
            ahead = self._ahead.after(self._pointer)
            # A column of a batch ends at 2 GiB, and nobody asked for that much memory.
            room = READ_BYTES_MAX - ahead.batch.payload.nbytes
            if len(ahead.batch) < wanted_rows and ahead.until < arrived and room > 0:
                wanted = wanted_rows - len(ahead.batch)
                damaged = self._core.handle_damage
                more = read_arrivals(view, ahead.until, wanted, damaged, bytes_max=room)
                ahead = Arrived(_joined(ahead.batch, more.batch), more.until)
            self._ahead = ahead
            return ahead.batch.slice(0, min(wanted_rows, len(ahead.batch)))

    def ack(self, seq: int) -> None:
        """Everything up to `seq` is done; a number below the pointer changes nothing.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...     audit = queue.consumer("audit")
        ...     receipt = queue.push([b"a", b"b"])
        ...     audit.ack(receipt.first)
        ...     audit.read().seqs.to_pylist()
        [2]
        """
        number = whole_number(seq)
        if number is None:
            raise InvalidInput(f"an arrival number is a whole number, not {shown(seq)}")
        view = self._core.view
        with self._held():
            arrived = view.arrived
            if number > arrived:
                raise InvalidInput(
                    f"no item has arrived with the number {shown(number)}; the last is {arrived}"
                )
            if number <= self._pointer:
                return
            with storage_errors("moving a consumer of", view.path):
                move(self._lock.file, number, sync=view.syncs_takes)
            moved, self._pointer = number - self._pointer, number
        self._core.after_ack(moved)

    def remove(self) -> None:
        """End the consumer for good; what only it held back is given back to the disk.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...     queue.consumer("audit").remove()
        ...     queue.consumers()
        {}
        """
        view = self._core.view
        with self._held():
            self._is_closed = True
            with storage_errors("removing a consumer of", view.path):
                remove_pointer(view.fs, view.path, self._name, self._lock)
        self._core.after_ack(view.arrived - self._pointer)

    def close(self) -> None:
        """Let another handle use the consumer; its pointer stays.

        >>> import tempfile, tidemill as tm
        >>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
        ...     queue.consumer("audit").close()
        ...     queue.consumers()
        {'audit': 0}
        """
        if self._core.view.is_here:
            with self._mutex:
                self._is_closed = True
                self._lock.release()

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self._lock.release()

    def __repr__(self) -> str:
        state = ", closed" if self._is_closed else ""
        return f"<Consumer {self._name!r} of {str(self._core.view.path)!r}{state}>"

    def _begin(self, start: Start) -> int:
        """Where the consumer stands; a new one writes down where it begins."""
        slot = read_slot(self._lock.file)
        if slot is not None and slot.pointer != NOT_BEGUN:
            # After a power cut the items may be gone that it is beyond, where those need not be
            # synced; the next owner gives their numbers to others.
            return min(slot.pointer, self._core.view.arrived)
        # Only now, when the file holds back everything: what comes from here on stays.
        self._core.view.check_open()
        arrived = self._core.view.arrived
        pointer = 0 if slot is None or start == "earliest" else arrived
        if isinstance(start, int) and slot is not None:
            pointer = min(start - 1, arrived)
        move(self._lock.file, pointer, sync=True)
        return pointer

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Within it the consumer is there, and nobody else uses it."""
        # In a child of os.fork() nobody would ever let go of what was held at that moment.
        self._core.view.check_alive()
        with self._mutex:
            if self._is_closed:
                raise Closed(f"consumer {self._name!r} was closed or removed; ask for it again")
            self._core.view.check_open()
            yield


def _joined(first: Batch, second: Batch) -> Batch:
    return Batch.concat([batch for batch in (first, second) if len(batch)] or [second])


def _checked(start: object) -> Start:
    """Where a new consumer begins, as a caller said it."""
    if isinstance(start, str):
        match start:
            case "latest" | "earliest":
                return start
    number = whole_number(start)
    if number is None or number < 1:
        raise InvalidInput(
            f"start is 'latest', 'earliest' or the first arrival number to read, not {shown(start)}"
        )
    return number
