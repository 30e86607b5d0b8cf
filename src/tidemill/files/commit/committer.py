"""Group commit: operations that wait at the same time share one write and one sync.

Single items that wait together even share a frame: a frame costs the same for one row as for a
hundred. A group that is too large for one write is written in several, each of which succeeds or
fails for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident

from tidemill.errors import DiskFull, TidemillError
from tidemill.files.commit.combining import Combining
from tidemill.files.commit.operation import Operation, PushOne
from tidemill.files.commit.preparation import Preparation
from tidemill.limits import COMMIT_BYTES_MAX


class Committer(Combining[Operation]):
    """Queues operations and lets one thread at a time write them."""

    def __init__(
        self,
        write: Callable[[list[Operation]], None],
        preparation: Preparation,
    ) -> None:
        super().__init__(self._commit, serve_one=self._commit_one)
        self._write = write
        self._preparation = preparation

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing while the block runs: operations wait until it is left."""
        pause = Operation(sync=False)
        try:
            while True:
                with self._mutex:
                    if self._leader is None:
                        self._leader, self._led_by = pause, get_ident()
                        break
                # Waits until whoever leads is done, and tries again.
                self.request([Operation(sync=False)])
            yield
        finally:
            try:
                self._hand_over(pause)
            except BaseException:
                # An interrupt: nobody may wait for ever behind it.
                self._hand_over(pause)
                raise

    def _commit_one(self, alone: Operation) -> None:
        if type(alone) is PushOne:
            alone.frames = self._preparation.frame_of_one(alone.row)
        self._write([alone])

    def _commit(self, group: list[Operation]) -> None:
        if len(group) == 1:
            self._commit_one(group[0])
            return
        singles = [operation for operation in group if type(operation) is PushOne]
        others = [operation for operation in group if type(operation) is not PushOne]
        if singles:
            together = self._preparation.together(singles)
            self._commit_part([*_head(others), together], singles)
        while others:
            self._commit_part(_head(others))

    def _commit_part(self, part: list[Operation], singles: Sequence[PushOne] = ()) -> None:
        try:
            self._write(part)
        except TidemillError as failure:
            again: list[Operation] = []
            if isinstance(failure, DiskFull):
                # What makes room must not fail for the company of what needs some.
                again = [operation for operation in part if operation.leaves_bytes is not None]
            for operation in [*part, *singles]:
                if len(again) == len(part) or operation not in again:
                    operation.failure = failure
            if 0 < len(again) < len(part):
                self._commit_part(again)


def _head(operations: list[Operation]) -> list[Operation]:
    """Take from the front as many as one write should hold, one at least if there is any."""
    total = count = 0
    for operation in operations:
        total += operation.total_bytes
        if count and total > COMMIT_BYTES_MAX:
            break
        count += 1
    head = operations[:count]
    del operations[:count]
    return head
