"""One use of a lane: what is written in it, and who has to hear of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tidemill.errors import Bug, TidemillError
from tidemill.log.sends import Send


class Turn:
    """Whoever writes has one, from taking a lane until all senders are told.

    taken ──gather──▶ group ──append──▶ ended, the lane is free ──tell──▶ over
    """

    __slots__ = ("ended", "failure", "group", "lane", "size", "sleepers", "teller")

    def __init__(self) -> None:
        self.lane = -1  # until it has one
        self.group: Sequence[Send] = ()  # what was gathered, in order
        self.size = 0  # of the group, in bytes
        self.ended: Sequence[Send] = ()  # whom to tell: the group, unless it is to be written again
        self.failure: TidemillError | None = None  # of all that ended
        self.teller = 0  # the thread that tells
        self.sleepers: deque[Send] = deque()  # whom to wake yet

    def tell(self) -> None:
        """Tell senders how their sends went, and resolve the futures of the rest. Done again after
        an interrupt, it goes on.

        Threads that sleep wake each other one by one: those that run at once only wait for each
        other, since the interpreter runs one at a time, and each that waits asks for its turn again
        and again.
        """
        self.sleepers = deque(send for send in self.ended if send.future is None)
        for send in self.ended:
            send.failure = self.failure
            send.payload = send.frames = None
            send.values = ()
            send.told_in = self
            send.is_done = True
        self.wake_next()
        for send in self.ended:
            resolve(send)

    def wake_next(self) -> None:
        """Wake the next of those whose sends are done. Each sender that waited does so, once."""
        while self.sleepers:
            try:
                sleeper = self.sleepers.popleft()
            except IndexError:
                return  # Another thread has taken the last one just now.
            if sleeper.wake():
                return

    def wake_all(self) -> None:
        """Wake everybody, for whose turn it was to wake the next is not known."""
        for send in self.ended:
            send.wake()


def resolve(send: Send) -> None:
    """Tell whoever has the future of a send how it went, if there is one."""
    if send.future is None or send.future.done():
        return
    if send.receipt is not None and send.failure is None:
        send.future.set_result(send.receipt)
    else:
        send.future.set_exception(send.failure or Bug("a send ended without a receipt"))
