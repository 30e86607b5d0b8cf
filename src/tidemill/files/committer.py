"""Group commit: operations that wait at the same time share one write and one sync.

Single items that wait together even share a frame: a frame costs the same for one row as for a
hundred.
"""

from __future__ import annotations

from collections.abc import Callable

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

    def _commit(self, group: list[Operation]) -> None:
        singles = [operation for operation in group if type(operation) is PushOne]
        if singles:
            others = [operation for operation in group if type(operation) is not PushOne]
            group = [*others, self._combine(singles)]
        self._write(group)
