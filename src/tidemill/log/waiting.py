"""Sends that wait to be written: in order, with their size."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from tidemill.log.sends import Send


class Waiting:
    """The sends in line. The caller holds a lock around each call.

    >>> from tidemill.log.sends import Send
    >>> waiting = Waiting()
    >>> waiting.append(Send(values=(b"a", b"b")))
    >>> waiting.first.count, waiting.size == waiting.first.size, len(waiting)
    (2, True, 1)
    >>> waiting.pop().values, waiting.size, bool(waiting)
    ((b'a', b'b'), 0, False)
    """

    def __init__(self) -> None:
        self._sends: deque[Send] = deque()
        self.size = 0  # in bytes

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
        self._sends.append(send)
        self.size += send.size

    def pop(self) -> Send:
        """Take the first one out."""
        send = self._sends.popleft()
        self.size -= send.size
        return send

    def remove(self, send: Send) -> bool:
        """Take one out wherever it stands; False if it is not in line."""
        try:
            self._sends.remove(send)
        except ValueError:
            return False
        self.size -= send.size
        return True

    def put_back(self, sends: Iterable[Send]) -> None:
        """Let sends that were taken out wait again, where they were."""
        self._replace(sorted([*sends, *self._sends], key=lambda send: send.order))

    def take_all(self) -> list[Send]:
        """Take every one out."""
        sends = list(self._sends)
        self._replace([])
        return sends

    def take_numbered(self) -> list[Send]:
        """Take those out that have a producer's number."""
        numbered = [send for send in self._sends if send.number is not None]
        self._replace([send for send in self._sends if send.number is None])
        return numbered

    def _replace(self, sends: list[Send]) -> None:
        self._sends = deque(sends)
        self.size = sum(send.size for send in sends)
