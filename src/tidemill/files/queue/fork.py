"""A fork: a named, independent consuming end."""

from __future__ import annotations

from tidemill.files.commit.operation import RemoveFork
from tidemill.files.queue.consuming_end import ConsumingEnd


class Fork(ConsumingEnd):
    """A consuming end of its own: it sees every push, and what it pops stays for the others.

    Made by `fork()`; there again after the queue was closed and opened.

    >>> import tempfile, tidemill as tm
    >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
    >>> audit = queue.fork("audit")
    >>> receipt = queue.push([(1, b"a")])
    >>> audit.pop().rows(), len(audit), len(queue)
    ([(1, b'a')], 0, 1)
    >>> audit.remove()
    >>> queue.close()
    """

    @property
    def name(self) -> str:
        return self._cursor.fork.name

    def remove(self) -> None:
        """End the fork; what only it had yet to consume is given back to the disk.

        >>> import tempfile, tidemill as tm
        >>> queue = tm.PriorityQueue(tempfile.mkdtemp())
        >>> queue.fork("audit").remove()
        >>> queue.forks()
        []
        >>> queue.close()
        """
        with self._held(self._core.forks_lock):
            self._check_not_reading()
            self._core.folder.commit(RemoveFork(self._cursor.fork.id))
        self._core.maintenance.after_remove(self._cursor.fork.id)

    def __repr__(self) -> str:
        if self._core.view.is_closed:
            state = "closed"
        else:
            state = "removed" if self._cursor.is_removed else f"{self._cursor.fork.live} items"
        return f"<Fork {self.name!r} of {str(self._core.view.path)!r}, {state}>"
