"""What becomes of a call that is cancelled while a thread works on it.

One rule: a call that raises CancelledError has done nothing. Before its work has begun it is
withdrawn. Afterwards nobody can call back what is being written to a disk, so the call sees its
work through, which takes moments, and delivers the outcome; the cancellation strikes at the next
await of the task instead.

    cancel() ──▶ not begun: withdraw ──▶ CancelledError, nothing happened
            ├──▶ waits for a lock: give up ──▶ CancelledError, nothing happened
            └──▶ begun: see it through ──▶ the result ──▶ CancelledError at the next await

Invariant: what a pop took from the disk reaches the code that asked for it, and no work goes on
behind the back of a call that has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from weakref import WeakSet

from tidemill.lock_wait import GivenUp

T = TypeVar("T")

_owed: WeakSet[asyncio.Task[Any]] = WeakSet()  # tasks that are about to be cancelled again


async def settle() -> None:
    """Let a cancellation strike that this task is owed, before it begins anything else."""
    if asyncio.current_task() in _owed:
        await asyncio.sleep(0)


async def see_through(work: asyncio.Future[T], withdraw: Callable[[], bool]) -> T:
    """The outcome of the work. `withdraw` is asked on cancellation; False: it has begun."""
    task = asyncio.current_task()
    requests_before = task.cancelling() if task else 0
    refused: list[asyncio.CancelledError] = []
    while not work.done():
        try:
            # Unlike awaiting the future itself, this leaves it alone when the task is cancelled.
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            if withdraw():
                raise
            refused.append(error)
    if refused and not work.cancelled() and isinstance(work.exception(), GivenUp):
        raise refused[0]
    if task is not None and refused:
        # One error may stand for several requests, and for one that was made before this call.
        answered = min(requests_before, task.cancelling() - len(refused))
        _owed.add(task)
        asyncio.get_running_loop().call_soon(_cancel_again, task, answered, refused[0].args[:1])
    return work.result()


def _cancel_again(task: asyncio.Task[Any], answered: int, message: tuple[Any, ...]) -> None:
    """Cancel a task that has gone on in spite of it, unless that is settled by now."""
    _owed.discard(task)
    # It may have ended; or left the timeout that cancelled it, which took its request back.
    if not task.done() and task.cancelling() > answered:
        # It stays one request, so that whoever made it recognises it.
        task.uncancel()
        task.cancel(*message)
