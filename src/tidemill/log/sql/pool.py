"""The connections of a store that no writer owns: any thread may borrow one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from tidemill.event import Event
from tidemill.log.sql.address import Address
from tidemill.log.sql.badges import end_holders, new_badge
from tidemill.log.sql.connection import Busy, Connection, Lost
from tidemill.log.sql.dialect import dialect_of
from tidemill.log.sql.patience import Patience

IDLE_MAX = 4  # connections that are kept for the next call

T = TypeVar("T")


class Pool:
    """Borrows connections out, and tries again when the server is away or busy."""

    def __init__(self, address: Address, retry_s: float) -> None:
        self._address = address
        self._connect = dialect_of(address).connect
        self._lock = threading.Lock()
        self._idle: list[Connection] = []
        self._lost: list[str] = []  # badges
        self.retry_s = retry_s
        self.closing = Event()

    def run(self, work: Callable[[Connection], T], patience: Patience | None = None) -> T:
        """Do `work` with a connection, again and again until the server answers.

        So the work must be such that repeating it does no harm, even if the first time took effect.
        Raises `Unavailable` when the time for it is up.
        """
        if patience is None:
            patience = Patience(self.retry_s, self.closing)
        while True:
            try:
                connection = self._borrow()
                try:
                    self._end_lost(connection)
                    done = work(connection)
                except BaseException as cause:
                    # It may be in the middle of a transaction, which ends with it.
                    connection.close()
                    if isinstance(cause, Lost):
                        with self._lock:
                            self._lost.append(connection.badge)
                    raise
                self._give_back(connection)
                return done
            except (Lost, Busy) as cause:
                patience.pause(cause)

    def close(self) -> None:
        self.closing.set()
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _borrow(self) -> Connection:
        with self._lock:
            while self._idle:
                connection = self._idle.pop()
                if not connection.is_stale:
                    return connection
                connection.close()
        return self._connect(self._address, new_badge())

    def _end_lost(self, connection: Connection) -> None:
        """End connections that fell silent, with the locks that they hold."""
        with self._lock:
            lost, self._lost = self._lost, []
        try:
            end_holders(connection, lost)
        except BaseException:
            with self._lock:
                self._lost += lost
            raise

    def _give_back(self, connection: Connection) -> None:
        with self._lock:
            if len(self._idle) < IDLE_MAX and not self.closing.is_set():
                self._idle.append(connection)
                return
        connection.close()
