"""Group commit: operations that wait at the same time share one write and one sync.

A thread that finds nobody committing leads: it takes all that wait, writes them, applies them,
wakes their threads and hands over to the first of those that came meanwhile. Everybody else sleeps
until its operation is done.

Single items that wait together even share a frame: a frame costs the same for one row as for a
hundred.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

from tidemill.errors import StorageFailed, TidemillError
from tidemill.files.operation import Operation, PushOne, PushTogether


class Committer:
    """Queues operations and lets one thread at a time write them."""

    def __init__(
        self,
        write: Callable[[list[Operation]], None],
        combine: Callable[[list[PushOne]], PushTogether],
    ) -> None:
        self._write = write
        self._combine = combine
        self._mutex = threading.Lock()
        self._waiting: list[Operation] = []
        self._is_led = False

    def commit(self, operation: Operation) -> None:
        """Return once the operation is written and applied; raise what stopped it otherwise."""
        self.commit_all([operation])

    def commit_all(self, mine: list[Operation]) -> None:
        """The same for several operations of one thread: each is there or not, but what stops one
        stops all.
        """
        with self._mutex:
            leads = not self._is_led
            if leads:
                self._is_led = True
            else:
                wakeup = threading.Lock()
                wakeup.acquire()
                for operation in mine:
                    operation.wakeup = wakeup
                # At once, so that whoever leads takes all of them or none.
                self._waiting += mine
        if leads:
            self._lead(mine)
        else:
            self._wait(mine, wakeup)
        failure = mine[0].failure
        if failure is not None:
            if leads:
                raise failure
            raise copy.copy(failure) from failure

    def _wait(self, mine: list[Operation], wakeup: threading.Lock) -> None:
        """Sleep until the operations are done, or it is this thread's turn to lead."""
        try:
            wakeup.acquire()
        except BaseException:
            self._abandon(mine, wakeup)
            raise
        if not mine[0].done:
            with self._mutex:
                group, self._waiting = self._waiting, []
            self._lead(group)

    def _lead(self, group: list[Operation]) -> None:
        failure: BaseException | None = None
        try:
            if len(group) > 1 or type(group[0]) is PushOne:
                self._write(self._combined(group))
            else:
                self._write(group)
        except TidemillError as error:
            failure = error
        except BaseException as error:
            # An interrupt in the middle of a write: whoever waits must not wait for ever.
            failure = StorageFailed("the commit was interrupted; close the queue and open it again")
            failure.__cause__ = error
            raise
        finally:
            for operation in group:
                operation.failure = failure
                operation.done = True
            self._hand_over()
            for operation in group:
                if operation.wakeup is not None:
                    _wake(operation)

    def _hand_over(self) -> None:
        """Wake the next leader, if anyone waits."""
        with self._mutex:
            if self._waiting:
                _wake(self._waiting[0])
            else:
                self._is_led = False

    def _abandon(self, mine: list[Operation], wakeup: threading.Lock) -> None:
        """The waiting thread was interrupted: withdraw what is not being written yet."""
        with self._mutex:
            if mine[0] not in self._waiting:
                return
            was_promoted = not wakeup.locked()
            self._waiting = [operation for operation in self._waiting if operation not in mine]
        if was_promoted:
            self._hand_over()

    def _combined(self, group: list[Operation]) -> list[Operation]:
        singles = [operation for operation in group if type(operation) is PushOne]
        if not singles:
            return group
        others = [operation for operation in group if type(operation) is not PushOne]
        return [*others, self._combine(singles)]


def _wake(operation: Operation) -> None:
    """Wake the thread of an operation, if it sleeps."""
    if operation.wakeup is not None and operation.wakeup.locked():
        operation.wakeup.release()
