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
    │   ├── ReadInProgress           a fork allows one read at a time
    │   ├── ForkRemoved
    │   ├── ReadOnly                 the queue was opened with read_only=True
    │   ├── Trimmed                  rows that a log no longer has
    │   ├── ProducerRewound          a producer's number that a later one has passed
    │   ├── ProducerMismatch         a producer's number again, with other rows
    │   ├── TransactionRewound       a transaction's number that a later one has passed
    │   └── Closed                   closed by you, or inherited through os.fork()
    ├── SurroundingsError        whoever runs the machine: make room, grant access
    │   ├── Locked                   another process owns the folder
    │   ├── NotAQueue                the folder holds something else
    │   ├── NotAnArchive             no bucket, or one that cannot be used, or another log's archive
    │   ├── UnknownFormat            written by a newer or foreign version
    │   ├── OldFormat                written by an older version: `tidemill upgrade`
    │   ├── QueueFull                `bytes_max` is reached
    │   ├── DiskFull
    │   ├── NoAccess                 read-only or forbidden
    │   ├── StorageFailed            the disk reported an error; the handle is poisoned
    │   ├── Unavailable              a server did not answer in time
    │   ├── OutcomeUnknown           whether it was written will be known once one can look again
    │   ├── StagingLost              rows that were staged for a transaction are gone
    │   └── MissingExtra             an optional dependency is not installed
    ├── Fenced                   a newer publisher or receiver took your place
    ├── PipelineFailed           its own code, or Spark: `pipeline`, `sink`; the next run resumes
    ├── Corrupt                  stored bytes are damaged: `path`, `offset`; `tidemill doctor`
    │   └── MissingRows              numbers that should be there are not
    └── Bug                      us: please report it

Messages say what happened, to what, and what to do. Exceptions of drivers and of the operating
system never escape: they are the `__cause__` of one of these.
"""

from __future__ import annotations

from pathlib import Path


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


class ReadInProgress(CallerError):
    """The fork already has a read transaction open."""


class ForkRemoved(CallerError):
    """The fork was removed; its handle is of no more use."""


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


class Closed(CallerError):
    """The handle was closed, or belongs to the parent of this forked process."""


class SurroundingsError(TidemillError):
    """The machine, its disk or another process stands in the way."""


class Locked(SurroundingsError):
    """Another process owns the folder; `pid` is its process id, if it could be read."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class NotAQueue(SurroundingsError):
    """The folder is not empty and holds no queue."""


class NotAnArchive(SurroundingsError):
    """There is no bucket, or it cannot hold an archive, or it holds that of another log."""


class UnknownFormat(SurroundingsError):
    """The folder, frame or record was written by a newer or foreign version."""


class OldFormat(SurroundingsError):
    """The folder was written by an older version; `tidemill upgrade` brings it up to date."""


class QueueFull(SurroundingsError):
    """The queue holds `bytes_max` already and was told to refuse."""


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
    """


class StagingLost(SurroundingsError):
    """Rows that a task staged for a transaction are gone, or not what it reported; nothing of the
    transaction was committed. Run it again.
    """


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
    which changed nothing since. Open a new one if it is this one that should go on.
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
