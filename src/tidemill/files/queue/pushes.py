"""Pushes: from rows to an operation and from that to a receipt; one at a time, or several at once.

Several that wait at the same time, each for its own caller, are committed by one thread in one
group. Each is an operation of its own all the same: what is wrong with one harms no other.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from typing import NamedTuple

from tidemill.batch import PlainRow
from tidemill.errors import TidemillError
from tidemill.files.commit.operation import GivenRows, Operation, Push, PushOne
from tidemill.files.folder.folder import Folder
from tidemill.files.queue.receipt import Durability, Receipt
from tidemill.files.upkeep.queue_core import QueueCore
from tidemill.limits import SEGMENT_BYTES

logger = logging.getLogger(__name__)

# What a frame of one row takes beside its data, and what each column of it adds.
_FRAME_BYTES = 512
_COLUMN_BYTES = 256


class PushRequest(NamedTuple):
    """What one caller of `push` gave."""

    data: object
    key: str | None


def push_operation(folder: Folder, given: GivenRows | PlainRow) -> Push | PushOne:
    """The rows, of which there is at least one, on their way into the journal."""
    sync = folder.syncs_pushes
    if isinstance(given, PlainRow) or folder.preparation.may_share(given):
        return PushOne(given, sync)
    return Push(sync, folder.preparation.frames(given))


def bytes_needed(folder: Folder, operation: Push | PushOne) -> int:
    """What a push will take in the journal, or a little more."""
    if isinstance(operation, PushOne):
        # Its frame is made when it is known which others it shares one with.
        return operation.row.data_bytes + _FRAME_BYTES + _COLUMN_BYTES * len(folder.payload_schema)
    return operation.total_bytes


def push_receipt(folder: Folder, operation: Push | PushOne | None, count: int) -> Receipt:
    """The receipt of an operation that was committed; None stands for the push of nothing."""
    durability: Durability = "synced" if folder.syncs_pushes else "buffered"
    if operation is None:
        arrived = folder.arrived
        return Receipt(arrived + 1, arrived, 0, durability)
    if isinstance(operation, PushOne):
        return Receipt(operation.seq, operation.seq, count, durability)
    return Receipt(*operation.seqs, count, durability)


def push_all(core: QueueCore, requests: Sequence[PushRequest]) -> list[Receipt | Exception]:
    """Push what several callers gave; for each its receipt, or what was wrong with it."""
    return _Group(core, requests).push()


class _Group:
    """Requests on their way: prepared one by one, committed when they fill a segment or all are."""

    def __init__(self, core: QueueCore, requests: Sequence[PushRequest]) -> None:
        self._core = core
        self._requests = requests
        self._outcomes: dict[int, Receipt | Exception] = {}
        self._ready: list[tuple[int, Push | PushOne, int]] = []  # (request, operation, rows)
        self._ready_bytes = 0

    def push(self) -> list[Receipt | Exception]:
        try:
            for number, request in enumerate(self._requests):
                try:
                    self._prepare(number, request)
                # It goes to the caller it belongs to, whose own iterator may raise anything.
                except Exception as error:  # noqa: BLE001
                    self._outcomes[number] = error
            self._commit()
        except BaseException:
            # An interrupt: others would wait for what nobody is going to write.
            self._core.room.release(self)
            raise
        self._core.maintenance.after_push()
        return [self._outcomes[number] for number in range(len(self._requests))]

    def _prepare(self, number: int, request: PushRequest) -> None:
        folder = self._core.folder
        folder.check_open()
        given = folder.preparation.given(request.data, request.key)
        count = given.row_count
        if not count:
            self._outcomes[number] = push_receipt(folder, None, 0)
            return
        operation = push_operation(folder, given)
        needed = bytes_needed(folder, operation)
        if self._ready_bytes + needed > SEGMENT_BYTES:
            self._commit()
        if not self._core.room.try_reserve(self, needed):
            # Whether there is room for this one must not depend on what it came with.
            self._commit()
            self._core.room.reserve(self, needed)
        self._ready.append((number, operation, count))
        self._ready_bytes += needed

    def _commit(self) -> None:
        ready, self._ready, self._ready_bytes = self._ready, [], 0
        if not ready:
            return
        folder = self._core.folder
        operations: list[Operation] = [operation for _, operation, _ in ready]
        try:
            folder.commit_all(operations)
        except TidemillError as error:
            logger.debug("a group of pushes did not all succeed: %s", error)
        self._core.room.release(self)
        for number, operation, count in ready:
            if isinstance(operation.failure, Exception):
                # Each caller raises its own, with its own traceback.
                self._outcomes[number] = copy.copy(operation.failure)
            else:
                self._outcomes[number] = push_receipt(folder, operation, count)
