"""The one tree of errors, split by who must act.

    TidemillError
    ├── CallerError              you: change the call
    │   ├── InvalidInput             what is never accepted: rows, keys, options (also a ValueError)
    │   │   ├── InvalidKey
    │   │   ├── InvalidName
    │   │   ├── InvalidPipeline      a pipeline that cannot be run as it is written
    │   │   ├── SchemaMismatch
    │   │   └── TooLarge             over a bound of `limits`
    │   ├── BucketMismatch           the folder was made with another bucket function
    │   ├── GeometryMismatch         the ring was made with other measures
    │   ├── ReadInProgress           a fork allows one read at a time
    │   ├── ForkRemoved
    │   ├── GroupRemoved             the same of a ring
    │   ├── ReadOnly                 the queue was opened with read_only=True
    │   ├── Trimmed                  rows that a log no longer has
    │   ├── ProducerRewound          a producer's number that a later one has passed
    │   ├── ProducerMismatch         a producer's number again, with other rows
    │   ├── TransactionRewound       a transaction's number that a later one has passed
    │   ├── NoSuchCounter
    │   ├── CounterExpired           it can be started again, or revived
    │   ├── CounterOverflow          more than an int64 holds
    │   └── Closed                   closed by you, or inherited through os.fork()
    ├── SurroundingsError        whoever runs the machine: make room, grant access
    │   ├── Locked                   another process owns the folder, or holds the ring's lock
    │   ├── NotAQueue                the folder holds something else, or there is no such ring
    │   ├── NotAnArchive             no bucket, or one that cannot be used, or another log's archive
    │   ├── UnknownFormat            written by a newer or foreign version
    │   ├── OldFormat                written by an older version: `tidemill upgrade`
    │   ├── QueueFull                `bytes_max` is reached, or the capacity of a ring
    │   ├── RingExhausted            a counter of a ring reached 2^63
    │   ├── DiskFull
    │   ├── NoAccess                 read-only or forbidden
    │   ├── StorageFailed            the disk reported an error; the handle is poisoned
    │   ├── Unavailable              a server did not answer in time
    │   ├── OutcomeUnknown           whether it was written will be known once one can look again
    │   ├── StagingLost              rows that were staged for a transaction are gone
    │   ├── BadMessage               what a peer sent is no message of counters
    │   ├── NodeRemoved              a node that was removed, and can come back empty
    │   ├── DuplicateNode            two processes count under one name, or a folder is an old copy
    │   └── MissingExtra             an optional dependency is not installed
    ├── Fenced                   a newer publisher or receiver took your place, or broke your lock
    ├── PipelineFailed           its own code, or Spark: `pipeline`, `sink`; the next run resumes
    ├── Corrupt                  stored bytes are damaged: `path`, `offset`; `tidemill doctor`
    │   └── MissingRows              numbers that should be there are not
    └── Bug                      us: please report it

Messages say what happened, to what, and what to do. Exceptions of drivers and of the operating
system never escape: they are the `__cause__` of one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any


class TidemillError(Exception):
    """The root of every error this package raises on purpose."""


class CallerError(TidemillError):
    """The call cannot succeed as it was made; nothing was changed."""


class InvalidInput(CallerError, ValueError):
    """Rows, keys or options that are never accepted."""


class InvalidKey(InvalidInput):
    """A key that is no int64: null, NaN, boolean, a float, or out of range."""


class InvalidName(InvalidInput):
    """A name outside the one grammar of names."""


class InvalidPipeline(InvalidInput):
    """A pipeline that cannot be run as it is written: its ends, its function, or its file."""


class SchemaMismatch(InvalidInput):
    """Rows whose columns do not fit the schema of the queue."""


class TooLarge(InvalidInput):
    """An item or batch above a bound of `tidemill.limits`."""


class BucketMismatch(CallerError):
    """The folder was made with another bucket function than the one given."""


class GeometryMismatch(CallerError):
    """The ring was made with another capacity, other records or other buffers than those given."""


class ReadInProgress(CallerError):
    """The fork already has a read transaction open."""


class ForkRemoved(CallerError):
    """The fork was removed; its handle is of no more use."""


class GroupRemoved(CallerError):
    """The group was removed from the ring; its handle is of no more use."""


class ReadOnly(CallerError):
    """The queue was opened with read_only=True, and the call would change it."""


class Trimmed(CallerError):
    """The log no longer has the rows that were asked for; `first` is the first that it has."""

    def __init__(self, message: str, *, first: int = 0) -> None:
        super().__init__(message)
        self.first = first


class ProducerRewound(CallerError):
    """A later number of this producer is published; `last` is that number."""

    def __init__(self, message: str, *, last: int = 0) -> None:
        super().__init__(message)
        self.last = last


class ProducerMismatch(CallerError):
    """A number of this producer is published already, with other rows than those sent now."""


class TransactionRewound(CallerError):
    """A later number of this transaction is committed; `last` is that number."""

    def __init__(self, message: str, *, last: int = 0) -> None:
        super().__init__(message)
        self.last = last


class NoSuchCounter(CallerError):
    """There is no counter of this name, or it was deleted; an upsert makes one."""


class CounterExpired(CallerError):
    """The counter's time is over: an upsert starts it again, a new TTL revives it."""


class CounterOverflow(CallerError):
    """The counter, or a node's part of it, would leave the range of int64; nothing was added."""


class Closed(CallerError):
    """The handle was closed, or belongs to the parent of this forked process."""


class SurroundingsError(TidemillError):
    """The machine, its disk or another process stands in the way."""


class Locked(SurroundingsError):
    """Another process owns the folder; `pid` is its process id, if it could be read. Or another
    client holds the lock of a ring for longer than the call would wait.
    """

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class NotAQueue(SurroundingsError):
    """The folder is not empty and holds no queue; or there is no ring of this name."""


class NotAnArchive(SurroundingsError):
    """There is no bucket, or it cannot hold an archive, or it holds that of another log."""


class UnknownFormat(SurroundingsError):
    """The folder, frame or record was written by a newer or foreign version."""


class OldFormat(SurroundingsError):
    """The folder was written by an older version; `tidemill upgrade` brings it up to date."""


class QueueFull(SurroundingsError):
    """The queue holds `bytes_max` already and was told to refuse; or a ring holds its capacity."""


class RingExhausted(SurroundingsError):
    """A counter of a ring has reached 2^63: it takes no more operations."""


class DiskFull(SurroundingsError):
    """No space is left on the device, or the quota is used up."""


class NoAccess(SurroundingsError):
    """The folder is read-only, or belongs to somebody else."""


class StorageFailed(SurroundingsError):
    """The disk reported an error. The handle takes no more writes: close it, then open it again."""


class Unavailable(SurroundingsError):
    """The server did not answer for so long that trying again was given up."""


class OutcomeUnknown(SurroundingsError):
    """The connection broke in the middle of a write, and the outcome could not be looked up. A send
    with a producer's number can be repeated safely; any other is there wholly or not at all.

    Of a call of a ring, `operation_id` is what to ask `ring.outcome` for, and `entries` are those
    that were dequeued if it was committed.
    """

    operation_id: str | None = None
    entries: Sequence[tuple[int, Any]] = ()


class StagingLost(SurroundingsError):
    """Rows that a task staged for a transaction are gone, or not what it reported; nothing of the
    transaction was committed. Run it again.
    """


class BadMessage(SurroundingsError):
    """What came from a peer is no message of counters; nothing of it was taken."""


class NodeRemoved(SurroundingsError):
    """The node `replica` was removed from the counters; it can come back with an empty folder."""

    def __init__(self, message: str, *, replica: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.replica = replica


class DuplicateNode(SurroundingsError):
    """Another process counts under this node's name, or the node's folder is older than what its
    peers know of it. Nothing is counted here any more.
    """

    def __init__(self, message: str, *, replica: tuple[str, int] | None = None) -> None:
        super().__init__(message)
        self.replica = replica


class MissingExtra(SurroundingsError):
    """An optional dependency is not installed; the message names the extra."""


class Corrupt(TidemillError):
    """Stored bytes are damaged: `path` and `offset` say where, `reason` says how it was noticed."""

    def __init__(
        self, reason: str, *, path: Path | str | None = None, offset: int | None = None
    ) -> None:
        place = f"{path}, offset {offset}: " if path is not None else ""
        super().__init__(place + reason)
        self.reason = reason
        self.path = None if path is None else Path(path)
        self.offset = offset

    def at(self, path: Path | str, offset: int) -> Corrupt:
        """The same damage, with the place that only the caller knows."""
        return type(self)(self.reason, path=path, offset=offset)


class MissingRows(Corrupt):
    """Rows `first` to `last` of a log should be there and are not."""

    def __init__(self, reason: str, *, first: int = 0, last: int = 0) -> None:
        super().__init__(reason)
        self.first = first
        self.last = last


class Fenced(TidemillError):
    """A newer publisher of the log, or receiver of the same consumer, took the place of this one,
    which changed nothing since. Open a new one if it is this one that should go on. Or another
    client broke the lock of a call of a ring, which had expired, and the call changed nothing.
    """


class PipelineFailed(TidemillError):
    """The code of a pipeline raised, or Spark gave up; the cause has all that Spark says. What was
    written counts, and the next run goes on behind it. `sink` is None if it failed before any.
    """

    def __init__(self, message: str, *, pipeline: str = "", sink: str | None = None) -> None:
        super().__init__(message)
        self.pipeline = pipeline
        self.sink = sink


class Bug(TidemillError):
    """An invariant of ours is broken. Please report it with the message."""
