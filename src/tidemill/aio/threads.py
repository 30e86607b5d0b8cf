"""The threads of one queue: where the calls run that may wait for a disk."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from tidemill.aio.cancellation import see_through
from tidemill.errors import Closed
from tidemill.lock_wait import giving_up

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A bounded set of threads, made as they are needed."""

    def __init__(self, count_max: int) -> None:
        self._pool = ThreadPoolExecutor(count_max, thread_name_prefix="tidemill-aio")
        self._under_way: set[asyncio.Future[object]] = set()
        self._have_ended = False

    async def run(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a blocking call; what cancelling does is told in `cancellation`."""
        work = self._submit(lambda: call(*args, **options))
        return await see_through(self._watched(asyncio.wrap_future(work)), work.cancel)

    async def run_waiting(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Run a call that may wait for another process before it begins: cancelled meanwhile, it
        waits no longer.
        """
        is_over = threading.Event()
        work = self._submit(lambda: giving_up(is_over.is_set, lambda: call(*args, **options)))

        def withdraw() -> bool:
            is_over.set()
            return work.cancel()

        return await see_through(self._watched(asyncio.wrap_future(work)), withdraw)

    def begin(self, call: Callable[P, T], *args: P.args, **options: P.kwargs) -> asyncio.Future[T]:
        """Run a blocking call that nobody can cancel."""
        return self._watched(asyncio.wrap_future(self._submit(lambda: call(*args, **options))))

    async def end(self) -> None:
        """Wait for what is under way, and end the threads."""
        loop = asyncio.get_running_loop()
        while mine := [one for one in self._under_way if one.get_loop() is loop]:
            await asyncio.wait(mine)
        # All are idle, so that this waits for no more than their last instructions.
        self._have_ended = True
        self._pool.shutdown()

    def _submit(self, call: Callable[[], T]) -> Future[T]:
        """Put a call in line for a thread; if it raises, the call is never made."""
        outcome: Future[T] = Future()
        try:
            self._pool.submit(_fulfil, outcome, call)
        except BaseException as error:
            # A pool that can start no thread has it in line all the same, where one that is there
            # would find it, or has by now.
            if outcome.cancel():
                if self._have_ended and isinstance(error, RuntimeError):
                    raise Closed("the handle was closed; open it again to use it") from error
                raise
        return outcome

    def _watched(self, future: asyncio.Future[T]) -> asyncio.Future[T]:
        # A future of anything is a future of an object, as long as it is only waited for.
        watched: asyncio.Future[object] = future  # type: ignore[assignment]
        self._under_way.add(watched)
        watched.add_done_callback(self._under_way.discard)
        return future


def _fulfil(outcome: Future[T], call: Callable[[], T]) -> None:
    """Make a call, unless it was withdrawn."""
    if not outcome.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 (whoever waits for it must hear of it)
        outcome.set_exception(error)
        del outcome  # It has the error, which has this frame: they would keep each other.
    else:
        outcome.set_result(result)
