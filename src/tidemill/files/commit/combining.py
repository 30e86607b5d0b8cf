"""Requests that wait at the same time are served together, by one of their threads.

A thread that finds nobody serving leads: it serves its own request and all that wait by the time it
may begin, wakes the threads whose requests were served, and hands over to the first of those that
came meanwhile. Everybody else sleeps until its request is done. So the more threads there are, the
more requests share what serving costs, and one thread alone pays next to nothing.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import Generic, TypeVar

from tidemill.errors import StorageFailed, TidemillError

logger = logging.getLogger(__name__)


class Request:
    """Something that a thread wants done, and how it went."""

    # Set once it matters: most requests are served at once, for a thread that is alone.
    done = False
    failure: BaseException | None = None
    wakeup: threading.Lock | None = None  # what the thread sleeps on, if it has to wait


R = TypeVar("R", bound=Request)
_OPEN: AbstractContextManager[object] = nullcontext()


class Combining(Generic[R]):
    """Lets one thread at a time serve all requests that wait.

    `gate` is what a leader must hold to serve, if there is one. It gathers once it has it: those
    who came while it waited at the gate are served too.

    Invariant: somebody waits only while somebody leads. Whoever is interrupted, wherever that is,
    does not stay the leader.
    """

    def __init__(
        self,
        serve: Callable[[list[R]], None],
        gate: AbstractContextManager[object] = _OPEN,
        *,
        serve_one: Callable[[R], None] | None = None,  # what `serve` does to a single request
    ) -> None:
        self._serve = serve
        self._serve_one = serve_one or (lambda request: serve([request]))
        self._gate = gate
        self._mutex = threading.Lock()
        self._waiting: list[R] = []
        self._served: list[R] = []  # whom the leader has begun to serve, or has served
        self._led_by = 0  # the thread that serves, once it has begun
        self._leader: R | None = None  # the first request of the thread that serves, or is to

    @property
    def is_led(self) -> bool:
        """Whether somebody serves, or is about to."""
        return self._leader is not None

    @property
    def is_led_here(self) -> bool:
        """Whether this very thread serves: then it is a signal's handler that asks."""
        return self._leader is not None and self._led_by == get_ident()

    def request_one(self, request: R) -> None:
        """Return once the request is served, or raise what stopped it. Whoever finds nobody else
        here, and no gate to wait at, is served with less ado.
        """
        if self._leader is None and self._gate is _OPEN:
            try:
                with self._mutex:
                    if self._leader is None:
                        self._leader, self._led_by = request, get_ident()
                if self._leader is request:
                    self._serve_one(request)
                    with self._mutex:
                        if not self._waiting:
                            self._leader = None
                            return
                    self._hand_over(request)
                    return
            except BaseException:
                try:
                    self._give_up([request])
                except BaseException:
                    # An interrupt as well: see `_lead`.
                    self._give_up([request])
                    raise
                raise
        self.request([request])

    def request(self, mine: list[R]) -> None:
        """Return once the requests of this thread are served; raise what stopped one otherwise,
        when each knows how it went itself. All of them are served by the same thread.
        """
        wakeup: threading.Lock | None = None
        try:
            with self._mutex:
                if self._leader is not None:
                    wakeup = threading.Lock()
                    wakeup.acquire()
                    for request in mine:
                        request.wakeup = wakeup
                    self._waiting += mine
                else:
                    self._leader, self._led_by = mine[0], get_ident()
                    if self._gate is not _OPEN:
                        self._waiting += mine
            if wakeup is None:
                # Where nothing has to be waited for, nobody else can have come by now.
                self._lead(mine, mine if self._gate is _OPEN else [])
            else:
                self._wait(mine, wakeup)
        except BaseException:
            self._see_through(mine, wakeup)
            raise
        for request in mine:
            if request.failure is not None:
                if wakeup is None:
                    raise request.failure
                raise copy.copy(request.failure) from request.failure

    def _wait(self, mine: list[R], wakeup: threading.Lock) -> None:
        """Sleep until the requests are done, or it is this thread's turn to lead."""
        wakeup.acquire()
        if not mine[0].done:
            self._lead(mine, [])

    def _lead(self, mine: list[R], group: list[R]) -> None:
        """Serve a group or, if it is empty, those who wait by the time this thread may begin."""
        failure: BaseException | None = None
        self._led_by = get_ident()
        try:
            if group:
                self._serve(group)
            else:
                with self._gate:
                    with self._mutex:
                        group, self._waiting = self._waiting, group
                        self._served = group
                    self._serve(group)
        except TidemillError as error:
            failure = error
        except BaseException as error:
            # An interrupt in the middle of a write: whoever waits must not wait for ever.
            failure = StorageFailed("the commit was interrupted; close the queue and open it again")
            failure.__cause__ = error
            raise
        finally:
            try:
                self._conclude(mine[0], group, failure)
            except BaseException:
                # An interrupt here as well: what it kept from being done is done all the same.
                self._conclude(mine[0], group, failure)
                raise

    def _conclude(self, leader: R, group: list[R], failure: BaseException | None) -> None:
        """Let the next leader begin, and those go on who were served. Done twice, it does no more
        than once.
        """
        for request in group:
            # Who serves may have noted failures of some of them.
            if request.failure is None:
                request.failure = failure
            request.done = True
        if group:
            self._hand_over(leader)
            for request in group:
                if request.wakeup is not None:
                    _wake(request)

    def _hand_over(self, leader: R) -> None:
        """Let the next one lead, if anyone waits, unless this one leads no longer."""
        with self._mutex:
            if self._leader is leader:
                self._led_by = 0
                self._leader = self._waiting[0] if self._waiting else None
            # Also where that was done before, by a call that was broken off: to wake somebody who
            # is awake does no harm.
            if self._leader is not None:
                _wake(self._leader)

    def _see_through(self, mine: list[R], wakeup: threading.Lock | None) -> None:
        """After an interrupt, return when it is settled what becomes of the requests: whoever
        leads and has begun to serve them goes on, and what this thread holds must not be let go
        before that is done.
        """
        while True:
            try:
                self._give_up(mine)
                with self._mutex:
                    is_served = mine[0] in self._served
                while is_served and wakeup is not None and not mine[0].done:
                    wakeup.acquire()
            except BaseException as again:  # noqa: BLE001
                # One more interrupt changes nothing; the first one is on its way.
                logger.debug("interrupted again, while a commit goes on: %r", again)
            else:
                return

    def _give_up(self, mine: list[R]) -> None:
        """Wait no longer, and lead no longer, if that is still so."""
        with self._mutex:
            self._waiting = [request for request in self._waiting if request not in mine]
        self._hand_over(mine[0])


def _wake(request: Request) -> None:
    """Wake the thread of a request, if it sleeps."""
    if request.wakeup is not None and request.wakeup.locked():
        request.wakeup.release()
