"""The exit status of the command `tidemill`, by the kind of error.

>>> import tidemill as tm
>>> status_of(tm.Locked("another process owns it"))
ExitStatus(number=5, kind='locked', meaning='another process owns the folder, or holds the ring')
"""

from __future__ import annotations

from typing import NamedTuple

from tidemill.errors import (
    BadMessage,
    CallerError,
    Corrupt,
    CounterExpired,
    DiskFull,
    DuplicateNode,
    Fenced,
    Locked,
    MissingExtra,
    NoAccess,
    NodeRemoved,
    NoSuchCounter,
    NotAnArchive,
    NotAQueue,
    OldFormat,
    OutcomeUnknown,
    PipelineFailed,
    QueueFull,
    RingExhausted,
    StagingLost,
    StorageFailed,
    Unavailable,
    UnknownFormat,
)
from tidemill.gateway.interrupts import Terminated
from tidemill.gateway.refusal import Declined, FoundDamage, NotFound, Stopped, TooFarBehind


class ExitStatus(NamedTuple):
    """A status, the word for it in JSON, and what it means."""

    number: int
    kind: str
    meaning: str


DONE = ExitStatus(0, "done", "done")
FAILED = ExitStatus(1, "failed", "a fault of ours: please report it")
USAGE = ExitStatus(2, "usage", "the command was not understood")
INVALID_INPUT = ExitStatus(3, "invalid-input", "rows, keys, names or options that are refused")
NOT_FOUND = ExitStatus(4, "not-found", "no queue, fork or file of that name")
LOCKED = ExitStatus(5, "locked", "another process owns the folder, or holds the ring")
FULL = ExitStatus(6, "full", "the disk is full, or the queue or ring is")
NO_ACCESS = ExitStatus(7, "no-access", "a file or folder is read-only, or somebody else's")
STORAGE = ExitStatus(8, "storage", "the disk reported an error")
CORRUPT = ExitStatus(9, "corrupt", "stored bytes are damaged")
OTHER_FORMAT = ExitStatus(10, "other-format", "an older release wrote the folder, or a newer one")
MISSING_EXTRA = ExitStatus(11, "missing-extra", "an optional dependency is not installed")
DECLINED = ExitStatus(12, "declined", "asked, and not confirmed: nothing was done")
FENCED = ExitStatus(13, "fenced", "a newer publisher or receiver took over")
UNKNOWN = ExitStatus(14, "unknown", "the connection broke: whether it was written is not known")
UNAVAILABLE = ExitStatus(15, "unavailable", "a server did not answer in time")
BEHIND = ExitStatus(16, "behind", "a consumer is further behind than was allowed")
PIPELINE = ExitStatus(17, "pipeline", "the code of a pipeline raised, or Spark gave up")
INTERRUPTED = ExitStatus(130, "interrupted", "Ctrl-C")
TERMINATED = ExitStatus(143, "terminated", "SIGTERM")
BROKEN_PIPE = ExitStatus(141, "broken-pipe", "whoever read the output has gone")

ALL = (
    DONE,
    FAILED,
    USAGE,
    INVALID_INPUT,
    NOT_FOUND,
    LOCKED,
    FULL,
    NO_ACCESS,
    STORAGE,
    CORRUPT,
    OTHER_FORMAT,
    MISSING_EXTRA,
    DECLINED,
    FENCED,
    UNKNOWN,
    UNAVAILABLE,
    BEHIND,
    PIPELINE,
    INTERRUPTED,
    BROKEN_PIPE,
    TERMINATED,
)

# The first that fits counts, so that a special kind stands before its general one.
_BY_ERROR: tuple[tuple[tuple[type[BaseException], ...], ExitStatus], ...] = (
    ((Declined,), DECLINED),
    ((NotFound, NotAQueue, NotAnArchive, NoSuchCounter, CounterExpired), NOT_FOUND),
    ((CallerError,), INVALID_INPUT),
    ((Locked,), LOCKED),
    ((QueueFull, DiskFull, RingExhausted), FULL),
    ((NoAccess,), NO_ACCESS),
    ((StorageFailed, StagingLost), STORAGE),
    ((Corrupt, FoundDamage), CORRUPT),
    ((UnknownFormat, OldFormat), OTHER_FORMAT),
    ((MissingExtra,), MISSING_EXTRA),
    ((Fenced, DuplicateNode, NodeRemoved), FENCED),
    ((OutcomeUnknown,), UNKNOWN),
    ((Unavailable, BadMessage), UNAVAILABLE),
    ((TooFarBehind,), BEHIND),
    ((PipelineFailed,), PIPELINE),
    ((Terminated,), TERMINATED),
    ((KeyboardInterrupt,), INTERRUPTED),
    ((BrokenPipeError,), BROKEN_PIPE),
)


def status_of(error: BaseException) -> ExitStatus:
    """The status that an error ends a command with.

    >>> status_of(ZeroDivisionError()).kind
    'failed'
    """
    if isinstance(error, Stopped):
        return status_of(error.cause)
    for kinds, status in _BY_ERROR:
        if isinstance(error, kinds):
            return status
    return FAILED
