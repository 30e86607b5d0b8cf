"""Group commit for tasks: pushes that are awaited at the same time go to disk in one round.

A round takes all that wait, prepares and commits them in one thread, and hands each task its own
receipt. While one round is on its way to the disk the next is prepared.

Rows that are made while they are read, by a generator say, may take as long as they like. They go
by themselves, a few at a time, so that nobody else waits for them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import islice

import pyarrow as pa

from tidemill.aio.cancellation import see_through
from tidemill.aio.threads import Threads
from tidemill.batch import Batch
from tidemill.files.queue.pushes import PushRequest, push_all
from tidemill.files.queue.receipt import Receipt
from tidemill.files.upkeep.queue_core import QueueCore
from tidemill.limits import PUSHES_PER_ROUND_MAX

ROUNDS_MAX = 2  # one that is prepared while another is written
SLOW_MAX = 2  # pushes of rows that are still being made; far fewer than there are threads


class PushRounds:
    """The pushes of one queue on its event loop."""

    def __init__(self, core: QueueCore, threads: Threads) -> None:
        self._core = core
        self._threads = threads
        self._waiting: dict[asyncio.Future[Receipt], PushRequest] = {}
        self._slow: dict[asyncio.Future[Receipt], PushRequest] = {}  # that wait as well
        self._begun: set[asyncio.Future[Receipt]] = set()
        self._rounds = self._slow_ones = 0

    async def push(self, request: PushRequest) -> Receipt:
        loop = asyncio.get_running_loop()
        receipt: asyncio.Future[Receipt] = loop.create_future()
        if _is_made(request.data):
            self._waiting[receipt] = request
            # Not at once: tasks that were started together then share the round.
            loop.call_soon(self._begin)
        else:
            self._slow[receipt] = request
            self._begin_slow()
        return await see_through(receipt, lambda: self._withdraw(receipt))

    async def drain(self) -> None:
        """Wait until every push that was begun is done."""
        while waiting := [*self._waiting, *self._slow, *self._begun]:
            await asyncio.wait(waiting)

    def _withdraw(self, receipt: asyncio.Future[Receipt]) -> bool:
        if self._waiting.pop(receipt, None) is None and self._slow.pop(receipt, None) is None:
            return False
        receipt.cancel()
        return True

    def _begin(self) -> None:
        if not self._waiting or self._rounds >= ROUNDS_MAX:
            return
        receipts = list(islice(self._waiting, PUSHES_PER_ROUND_MAX))
        requests = [self._waiting[receipt] for receipt in receipts]
        for receipt in receipts:
            del self._waiting[receipt]
        self._rounds += 1
        self._start(receipts, requests, self._end_round)

    def _end_round(self) -> None:
        self._rounds -= 1
        self._begin()

    def _begin_slow(self) -> None:
        if self._slow and self._slow_ones < SLOW_MAX:
            receipt = next(iter(self._slow))
            self._slow_ones += 1
            self._start([receipt], [self._slow.pop(receipt)], self._end_slow)

    def _end_slow(self) -> None:
        self._slow_ones -= 1
        self._begin_slow()

    def _start(
        self,
        receipts: list[asyncio.Future[Receipt]],
        requests: list[PushRequest],
        then: Callable[[], None],
    ) -> None:
        try:
            outcomes = self._threads.begin(push_all, self._core, requests)
        except Exception as error:  # noqa: BLE001 (whoever pushes must hear of it)
            outcomes = asyncio.get_running_loop().create_future()
            outcomes.set_exception(error)
        self._begun.update(receipts)
        outcomes.add_done_callback(partial(self._finish, receipts, then))

    def _finish(
        self,
        receipts: list[asyncio.Future[Receipt]],
        then: Callable[[], None],
        outcomes: asyncio.Future[list[Receipt | Exception]],
    ) -> None:
        self._begun.difference_update(receipts)
        failure = outcomes.exception()
        for number, receipt in enumerate(receipts):
            outcome = failure or outcomes.result()[number]
            if isinstance(outcome, Receipt):
                receipt.set_result(outcome)
            elif isinstance(outcome, StopIteration):
                # A future takes any exception but this one, which generators give a meaning to.
                receipt.set_exception(RuntimeError("a push raised StopIteration"))
            else:
                receipt.set_exception(outcome)
        then()


def _is_made(data: object) -> bool:
    """Whether the rows are there, so that taking them in takes no longer than they are many."""
    if type(data) in (list, tuple) or isinstance(data, Batch | pa.Table | pa.ChunkedArray):
        return True
    # Arrays and batches of Arrow have the one; frames of pandas, polars and the like the other.
    return hasattr(data, "__arrow_c_array__") or hasattr(data, "__dataframe__")
