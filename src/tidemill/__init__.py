"""Durable queues for Python that live on what you already have.

>>> import tempfile
>>> import tidemill as tm
>>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
...     receipt = queue.push([(3, b"c"), (1, b"a")])
...     queue.pop(2).rows()
[(1, b'a'), (3, b'c')]
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.platform == "win32":
    raise ImportError(
        "Tidemill needs the file locks and syncs of Linux or macOS; Windows has neither"
    )

if TYPE_CHECKING:
    from tidemill import aio
    from tidemill.batch import Batch, Item, LogBatch, LogItem
    from tidemill.counters.counters import Counters
    from tidemill.counters.replication.tls import Tls
    from tidemill.errors import (
        BadMessage,
        BucketMismatch,
        Bug,
        CallerError,
        Closed,
        Corrupt,
        CounterExpired,
        CounterOverflow,
        DiskFull,
        DuplicateNode,
        Fenced,
        ForkRemoved,
        GeometryMismatch,
        GroupRemoved,
        InvalidInput,
        InvalidKey,
        InvalidName,
        InvalidPipeline,
        Locked,
        MissingExtra,
        MissingRows,
        NoAccess,
        NodeRemoved,
        NoSuchCounter,
        NotAnArchive,
        NotAQueue,
        OldFormat,
        OutcomeUnknown,
        PipelineFailed,
        ProducerMismatch,
        ProducerRewound,
        QueueFull,
        ReadInProgress,
        ReadOnly,
        RingExhausted,
        SchemaMismatch,
        StagingLost,
        StorageFailed,
        SurroundingsError,
        TidemillError,
        TooLarge,
        TransactionRewound,
        Trimmed,
        Unavailable,
        UnknownFormat,
    )
    from tidemill.files import doctor
    from tidemill.files.queue.consumer import Consumer
    from tidemill.files.queue.fork import Fork
    from tidemill.files.queue.priority_queue import PriorityQueue, Stats
    from tidemill.files.queue.read import Read
    from tidemill.files.queue.receipt import Receipt
    from tidemill.files.state.bucket import Custom, Shift, Width
    from tidemill.log.archive.archived import Archived
    from tidemill.log.archive.restored import Restored
    from tidemill.log.contract import Ends
    from tidemill.log.log import Log
    from tidemill.log.mysql.outbox import Outbox
    from tidemill.log.publisher import Publisher
    from tidemill.log.receiver import Received, Receiver
    from tidemill.log.restoring import restore
    from tidemill.log.sends import SOURCED, Sourced
    from tidemill.records.group import Group
    from tidemill.records.protocol.reading import Outcome
    from tidemill.records.protocol.values import Entry
    from tidemill.records.ring import Ring, RingInfo

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 (in plain order)
    "Archived",
    "BadMessage",
    "Batch",
    "BucketMismatch",
    "Bug",
    "CallerError",
    "Closed",
    "Consumer",
    "Corrupt",
    "CounterExpired",
    "CounterOverflow",
    "Counters",
    "Custom",
    "DiskFull",
    "DuplicateNode",
    "Ends",
    "Entry",
    "Fenced",
    "Fork",
    "ForkRemoved",
    "GeometryMismatch",
    "Group",
    "GroupRemoved",
    "InvalidInput",
    "InvalidKey",
    "InvalidName",
    "InvalidPipeline",
    "Item",
    "Locked",
    "Log",
    "LogBatch",
    "LogItem",
    "MissingExtra",
    "MissingRows",
    "NoAccess",
    "NoSuchCounter",
    "NodeRemoved",
    "NotAQueue",
    "NotAnArchive",
    "OldFormat",
    "Outbox",
    "Outcome",
    "OutcomeUnknown",
    "PipelineFailed",
    "PriorityQueue",
    "ProducerMismatch",
    "ProducerRewound",
    "Publisher",
    "QueueFull",
    "Read",
    "ReadInProgress",
    "ReadOnly",
    "Receipt",
    "Received",
    "Receiver",
    "Restored",
    "Ring",
    "RingExhausted",
    "RingInfo",
    "SOURCED",
    "SchemaMismatch",
    "Shift",
    "Sourced",
    "StagingLost",
    "Stats",
    "StorageFailed",
    "SurroundingsError",
    "TidemillError",
    "Tls",
    "TooLarge",
    "TransactionRewound",
    "Trimmed",
    "Unavailable",
    "UnknownFormat",
    "Width",
    "__version__",
    "aio",
    "doctor",
    "restore",
]


# Where each name comes from. A module is imported when one of its names is first used: a worker of
# Spark, or a command, needs a part of them, and most programs have no event loop, and are healthy.
_HOMES = {
    "tidemill.batch": ("Batch", "Item", "LogBatch", "LogItem"),
    "tidemill.counters.counters": ("Counters",),
    "tidemill.counters.replication.tls": ("Tls",),
    "tidemill.files.state.bucket": ("Custom", "Shift", "Width"),
    "tidemill.files.queue.consumer": ("Consumer",),
    "tidemill.files.queue.fork": ("Fork",),
    "tidemill.files.queue.priority_queue": ("PriorityQueue", "Stats"),
    "tidemill.files.queue.read": ("Read",),
    "tidemill.files.queue.receipt": ("Receipt",),
    "tidemill.log.archive.archived": ("Archived",),
    "tidemill.log.archive.restored": ("Restored",),
    "tidemill.log.contract": ("Ends",),
    "tidemill.log.log": ("Log",),
    "tidemill.log.mysql.outbox": ("Outbox",),
    "tidemill.log.publisher": ("Publisher",),
    "tidemill.log.receiver": ("Received", "Receiver"),
    "tidemill.log.restoring": ("restore",),
    "tidemill.log.sends": ("SOURCED", "Sourced"),
    "tidemill.records.group": ("Group",),
    "tidemill.records.protocol.reading": ("Outcome",),
    "tidemill.records.protocol.values": ("Entry",),
    "tidemill.records.ring": ("Ring", "RingInfo"),
}
_MODULES = {"aio": "tidemill.aio", "doctor": "tidemill.files.doctor"}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # which would take every name for known

    def __getattr__(name: str) -> Any:
        """Import what is used for the first time."""
        if name in _MODULES:
            found: Any = import_module(_MODULES[name])
        elif name in __all__:
            # All that no other module has is an error.
            found = getattr(import_module(_HOME_OF.get(name, "tidemill.errors")), name)
        else:
            raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
