"""A producer's numbers: a send that is repeated under the same number is written once.

    number   1   2   3   5 …    they grow, and may skip
                     ▲
                     └ the last one is stored with its rows, so that a later process knows it

Only the last number is stored. What was sent with `send_soon` and failed takes everything numbered
behind it along, so that a number is never passed by a higher one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemill.errors import InvalidInput, ProducerMismatch, ProducerRewound, TidemillError
from tidemill.files.queue.receipt import Durability, Receipt
from tidemill.limits import DIGEST_BYTES_MAX, INT64_MAX
from tidemill.log.contract import LogWriter, Mark
from tidemill.log.sends import Send
from tidemill.names import check_name
from tidemill.shown import shown


class Producer:
    """What a publisher knows of its producer. The caller holds a lock around each call."""

    def __init__(self, name: str, writer: LogWriter) -> None:
        self.name = check_name(name, what="producer")
        self._last = writer.mark(name)
        self._under_way: dict[int, Send] = {}
        self._generation = 0
        self._failed: int | None = None  # the lowest that failed, of which the caller may not know
        self.failure: TidemillError | None = None  # what the last generation ended with

    @property
    def last_number(self) -> int | None:
        """The last number that is published; None if there is none."""
        return None if self._last is None else self._last.number

    @staticmethod
    def check(producer: Producer | None, number: int | None, digest: bytes) -> None:
        """Refuse what is no number, or has no producer.

        >>> Producer.check(None, 7, b"")
        Traceback (most recent call last):
        tidemill.errors.InvalidInput: only a publisher that has a producer takes numbers: \
publisher(producer=...)
        """
        if number is None:
            if digest:
                raise InvalidInput("a digest belongs to a number: give both")
            return
        if producer is None:
            raise InvalidInput(
                "only a publisher that has a producer takes numbers: publisher(producer=...)"
            )
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= INT64_MAX:
            raise InvalidInput(
                f"a producer's number is a whole number from 0 on, not {shown(number)}"
            )
        if not isinstance(digest, bytes) or len(digest) > DIGEST_BYTES_MAX:
            raise InvalidInput(f"a digest is at most {DIGEST_BYTES_MAX} bytes")

    def knows(self, send: Send, durability: Durability) -> bool:
        """Whether the number is written already: then the send has its receipt. If not, it is on
        its way from now on.
        """
        number = send.number
        if number is None:
            return False
        if number in self._under_way:
            raise InvalidInput(f"number {number} is on its way already: wait for its receipt")
        if self._failed is not None and number > self._failed:
            raise InvalidInput(
                f"number {self._failed} failed and comes before {number}: send it again, or leave "
                "it out with a new publisher"
            )
        # They are in order, so that the last one is the highest of those under way.
        highest = max(next(reversed(self._under_way), -1), self._last.number if self._last else -1)
        if self._last is not None and number == self._last.number:
            send.receipt = self._again(send, self._last, durability)
            return True
        if number < highest:
            raise ProducerRewound(
                f"number {number} of producer {self.name!r} comes too late: {highest} was sent "
                "already, and only the last one can be repeated",
                last=highest,
            )
        self._failed = None
        send.generation = self._generation
        self._under_way[number] = send
        return False

    def mark(self, send: Send, first: int) -> Mark:
        """What is to be stored with the rows of a send that begin at `first`."""
        number = send.number or 0
        return Mark(self.name, number, first, first + send.count - 1, send.digest)

    def confirm(self, mark: Mark) -> None:
        """Everything up to this mark is written; those who say so may overtake each other."""
        if self._last is None or mark.number > self._last.number:
            self._last = mark
        self._under_way = {
            number: send for number, send in self._under_way.items() if number > mark.number
        }

    def is_stale(self, send: Send) -> bool:
        """Whether a send was numbered before one in front of it failed."""
        return send.number is not None and send.generation != self._generation

    def take_back(self, sends: Sequence[Send], error: TidemillError) -> None:
        """These failed, and may be sent again, the lowest first. Who waits for a send hears of it
        before another one can be made; who has a future may not have looked.
        """
        self._generation += 1
        self.failure = error
        for send in sends:
            if send.number is not None:
                self._under_way.pop(send.number, None)
                if send.future is not None:
                    failed = send.number if self._failed is None else self._failed
                    self._failed = min(failed, send.number)

    def forget(self, send: Send) -> None:
        """A send never came in line, or is out of it: its number is not on its way."""
        if send.number is not None and self._under_way.get(send.number) is send:
            del self._under_way[send.number]

    def _again(self, send: Send, last: Mark, durability: Durability) -> Receipt:
        count = last.last - last.first + 1
        if count != send.count or (last.digest and send.digest and last.digest != send.digest):
            raise ProducerMismatch(
                f"number {last.number} of producer {self.name!r} was sent with other rows: "
                f"{count} of them, which became {last.first} to {last.last}"
            )
        return Receipt(last.first, last.last, count, durability)
