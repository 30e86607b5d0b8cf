"""Group commit: operations that wait at the same time share one write and one sync.

Single items that wait together even share a frame: a frame costs the same for one row as for a
hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tidemill.files.combining import Combining
from tidemill.files.operation import Operation, PushOne, PushTogether


class Committer(Combining[Operation]):
    """Queues operations and lets one thread at a time write them."""

    def __init__(
        self,
        write: Callable[[list[Operation]], None],
        combine: Callable[[list[PushOne]], PushTogether],
    ) -> None:
        super().__init__(self._commit)
        self._write = write
        self._combine = combine

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write nothing while the block runs: operations wait until it is left."""
        while True:
            with self._mutex:
                if not self._is_led:
                    self._is_led = True
                    break
            # Waits until whoever leads is done, and tries again.
            self.request([Operation(sync=False)])
        try:
            yield
        finally:
            self._hand_over()

    def _commit(self, group: list[Operation]) -> None:
        singles = [operation for operation in group if type(operation) is PushOne]
        if singles:
            others = [operation for operation in group if type(operation) is not PushOne]
            group = [*others, self._combine(singles)]
        self._write(group)
