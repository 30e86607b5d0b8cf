"""Whether a thread works on a queue alone, so that what it commits may be applied while the disk is
still at work.

    written ──▶ applied ──▶ synced        alone: the disk writes while Python does its part
    written ──▶ synced ──▶ applied        otherwise

Nobody may see what is not on disk yet, so that the guard is held from the one to the other, and
whoever wants to look meanwhile waits. Hence the rules: the thread has committed the last time as
well, the last such sync was short, and now and then one is waited for without the guard. A lock is
not fair, and on a single core somebody else would only ever get to it while it is held.
"""

from __future__ import annotations

from threading import get_ident

from tidemill.limits import GUARDED_SYNC_S_MAX, GUARDED_SYNCS_IN_A_ROW, UNGUARDED_SYNCS


class Solitude:
    """Watches who commits. Used by one thread at a time, the one that writes.

    >>> solitude = Solitude()
    >>> [solitude.note_commit() for _ in range(3)]
    [False, True, True]
    """

    __slots__ = ("_in_a_row", "_thread", "_unguarded")

    def __init__(self) -> None:
        self._thread = 0  # that committed last
        self._in_a_row = 0  # commits of a thread that was alone
        self._unguarded = 0  # commits that nobody is to wait for, because the disk is slow

    def note_commit(self, *, is_shared: bool = False) -> bool:
        """Take note of a commit, of one thread or shared by several; whether its thread is alone,
        so that it may be applied before it is synced.
        """
        last, self._thread = self._thread, 0 if is_shared else get_ident()
        if self._unguarded:
            self._unguarded -= 1
        elif last == self._thread != 0 and self._in_a_row < GUARDED_SYNCS_IN_A_ROW:
            self._in_a_row += 1
            return True
        self._in_a_row = 0
        return False

    def note_sync(self, seconds: float) -> None:
        """A sync under the guard took so long."""
        if seconds > GUARDED_SYNC_S_MAX:
            self._unguarded = UNGUARDED_SYNCS
