"""Requests that wait at the same time are served together, by one of their threads.

A thread that finds nobody serving leads: it serves its own request and all that wait by the time it
may begin, wakes the threads whose requests were served, and hands over to the first of those that
came meanwhile. Everybody else sleeps until its request is done. So the more threads there are, the
more requests share what serving costs, and one thread alone pays next to nothing.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Generic, TypeVar

from tidemill.errors import StorageFailed, TidemillError


class Request:
    """Something that a thread wants done, and how it went."""

    __slots__ = ("done", "failure", "wakeup")

    def __init__(self) -> None:
        self.done = False
        self.failure: BaseException | None = None
        self.wakeup: threading.Lock | None = None  # what the thread sleeps on, if it has to wait


R = TypeVar("R", bound=Request)
_OPEN: AbstractContextManager[object] = nullcontext()


class Combining(Generic[R]):
    """Lets one thread at a time serve all requests that wait.

    `gate` is what a leader must hold to serve, if there is one. It gathers once it has it: those
    who came while it waited at the gate are served too.

    Invariant: somebody waits only while somebody leads.
    """

    def __init__(
        self, serve: Callable[[list[R]], None], gate: AbstractContextManager[object] = _OPEN
    ) -> None:
        self._serve = serve
        self._gate = gate
        self._mutex = threading.Lock()
        self._waiting: list[R] = []
        self._is_led = False
        self._heir: R | None = None  # the request whose thread is to lead next

    @property
    def is_led(self) -> bool:
        """Whether somebody serves, or is about to."""
        return self._is_led

    def request(self, mine: list[R]) -> None:
        """Return once the requests of this thread are served; raise what stopped one otherwise,
        when each knows how it went itself. All of them are served by the same thread.
        """
        wakeup: threading.Lock | None = None
        with self._mutex:
            if self._is_led:
                wakeup = threading.Lock()
                wakeup.acquire()
                for request in mine:
                    request.wakeup = wakeup
                self._waiting += mine
            else:
                self._is_led = True
                if self._gate is not _OPEN:
                    self._waiting += mine
        if wakeup is not None:
            self._wait(mine, wakeup)
        else:
            # Where nothing has to be waited for, nobody else can have come by now.
            self._lead(mine, mine if self._gate is _OPEN else [])
        for request in mine:
            if request.failure is not None:
                if wakeup is None:
                    raise request.failure
                raise copy.copy(request.failure) from request.failure

    def _wait(self, mine: list[R], wakeup: threading.Lock) -> None:
        """Sleep until the requests are done, or it is this thread's turn to lead."""
        try:
            wakeup.acquire()
        except BaseException:
            with self._mutex:
                was_promoted = self._heir is mine[0]
                self._withdraw(mine)
            if was_promoted:
                self._hand_over()
            raise
        if not mine[0].done:
            self._lead(mine, [])

    def _lead(self, mine: list[R], group: list[R]) -> None:
        """Serve a group or, if it is empty, those who wait by the time this thread may begin."""
        failure: BaseException | None = None
        try:
            if group:
                self._serve(group)
            else:
                with self._gate:
                    with self._mutex:
                        self._heir = None
                        group, self._waiting = self._waiting, group
                    self._serve(group)
        except TidemillError as error:
            failure = error
        except BaseException as error:
            # An interrupt in the middle of a write: whoever waits must not wait for ever.
            failure = StorageFailed("the commit was interrupted; close the queue and open it again")
            failure.__cause__ = error
            raise
        finally:
            for request in group:
                # Who serves may have noted failures of some of them.
                if request.failure is None:
                    request.failure = failure
                request.done = True
            if not group:
                with self._mutex:
                    self._withdraw(mine)  # The interrupt came at the gate.
            self._hand_over()
            for request in group:
                if request.wakeup is not None:
                    _wake(request)

    def _hand_over(self) -> None:
        """Wake the next leader, if anyone waits."""
        with self._mutex:
            if self._waiting:
                self._heir = self._waiting[0]
                _wake(self._heir)
            else:
                self._heir = None
                self._is_led = False

    def _withdraw(self, mine: list[R]) -> None:
        """Forget what is not being served yet. Called under the mutex."""
        self._waiting = [request for request in self._waiting if request not in mine]


def _wake(request: Request) -> None:
    """Wake the thread of a request, if it sleeps."""
    if request.wakeup is not None and request.wakeup.locked():
        request.wakeup.release()
