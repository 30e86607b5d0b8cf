"""Sends that wait to be written: in order, with their size."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from tidemill.log.sends import Send


class Waiting:
    """The sends in line. The caller holds a lock around each call.

    Whatever takes sends out makes another line, which the caller puts in the place of this one in
    the same breath in which it notes who has them: an interrupt finds them here or there.

    >>> from tidemill.log.sends import Send
    >>> waiting = Waiting()
    >>> waiting.append(Send(values=(b"a", b"b")))
    >>> waiting.first.count, waiting.size == waiting.first.size, len(waiting)
    (2, True, 1)
    >>> group, rest = waiting.divided(1_000)
    >>> group[0].values, rest.size, bool(rest)
    ((b'a', b'b'), 0, False)
    """

    def __init__(self, sends: Iterable[Send] = ()) -> None:
        self._sends = deque(sends)
        self.size = sum(send.size for send in self._sends)  # in bytes

    def __len__(self) -> int:
        return len(self._sends)

    def __iter__(self) -> Iterator[Send]:
        return iter(self._sends)

    @property
    def first(self) -> Send:
        """The one whose turn is next; there must be one."""
        return self._sends[0]

    def append(self, send: Send) -> None:
        """Put a send at the end of the line."""
        self.size += send.size
        # Last, for an interrupt can come behind any call.
        self._sends.append(send)

    def divided(self, bytes_max: int) -> tuple[list[Send], Waiting]:
        """Those that are written next, and the line of the others. One may be larger, and one
        without rows comes first.
        """
        group: list[Send] = []
        size = 0
        for send in self._sends:
            if group and (size + send.size > bytes_max or not send.count):
                break
            size += send.size
            group.append(send)
        return group, Waiting(islice(self._sends, len(group), None))

    def without(self, gone: Collection[Send]) -> Waiting:
        """The line of all but these."""
        ids = {id(send) for send in gone}
        return Waiting(send for send in self._sends if id(send) not in ids)

    def with_back(self, sends: Iterable[Send]) -> Waiting:
        """The line in which sends that were taken out wait again, where they were."""
        return Waiting(sorted([*sends, *self._sends], key=lambda send: send.order))
