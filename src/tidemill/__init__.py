"""Durable queues for Python that live on what you already have.

>>> import tempfile
>>> import tidemill as tm
>>> with tm.PriorityQueue(tempfile.mkdtemp()) as queue:
...     receipt = queue.push([(3, b"c"), (1, b"a")])
...     queue.pop(2).rows()
[(1, b'a'), (3, b'c')]
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from tidemill import aio
    from tidemill.files import doctor
    from tidemill.log.mysql.outbox import Outbox

if sys.platform == "win32":
    raise ImportError(
        "Tidemill needs the file locks and syncs of Linux or macOS; Windows has neither"
    )

from tidemill.batch import Batch, Item, LogBatch, LogItem
from tidemill.errors import (
    BucketMismatch,
    Bug,
    CallerError,
    Closed,
    Corrupt,
    DiskFull,
    Fenced,
    ForkRemoved,
    InvalidInput,
    InvalidKey,
    InvalidName,
    Locked,
    MissingExtra,
    MissingRows,
    NoAccess,
    NotAQueue,
    OldFormat,
    OutcomeUnknown,
    ProducerMismatch,
    ProducerRewound,
    QueueFull,
    ReadInProgress,
    ReadOnly,
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
from tidemill.files.bucket import Custom, Shift, Width
from tidemill.files.consumer import Consumer
from tidemill.files.fork import Fork
from tidemill.files.priority_queue import PriorityQueue, Stats
from tidemill.files.read import Read
from tidemill.files.receipt import Receipt
from tidemill.log.contract import Ends
from tidemill.log.log import Log
from tidemill.log.publisher import Publisher
from tidemill.log.receiver import Received, Receiver
from tidemill.log.sends import SOURCED, Sourced

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 (in plain order)
    "Batch",
    "BucketMismatch",
    "Bug",
    "CallerError",
    "Closed",
    "Consumer",
    "Corrupt",
    "Custom",
    "DiskFull",
    "Ends",
    "Fenced",
    "Fork",
    "ForkRemoved",
    "InvalidInput",
    "InvalidKey",
    "InvalidName",
    "Item",
    "Locked",
    "Log",
    "LogBatch",
    "LogItem",
    "MissingExtra",
    "MissingRows",
    "NoAccess",
    "NotAQueue",
    "OldFormat",
    "Outbox",
    "OutcomeUnknown",
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
    "SOURCED",
    "SchemaMismatch",
    "Shift",
    "Sourced",
    "StagingLost",
    "Stats",
    "StorageFailed",
    "SurroundingsError",
    "TidemillError",
    "TooLarge",
    "TransactionRewound",
    "Trimmed",
    "Unavailable",
    "UnknownFormat",
    "Width",
    "__version__",
    "aio",
    "doctor",
]


def __getattr__(name: str) -> "ModuleType | type[Outbox]":
    """`tm.aio` and `tm.doctor` are imported when they are first used: most programs have no event
    loop, and are healthy.
    """
    if name == "Outbox":
        from tidemill.log.mysql.outbox import Outbox  # noqa: PLC0415 (its driver is an extra)

        return Outbox
    if name == "aio":
        import tidemill.aio  # noqa: PLC0415

        return tidemill.aio
    if name == "doctor":
        from tidemill.files import doctor  # noqa: PLC0415

        return doctor
    raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
