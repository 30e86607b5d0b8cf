"""What a store must do to hold a log: the contract that memory, folders and servers keep.

A log is an endless row of rows with the numbers 1, 2, 3, …. Some are gone at the front (trimmed),
and the *writer pointer* is the last one that counts:

        trimmed        │           readable            │  being written
    1 … first − 1      │  first … next − 1             │  next …
                       │               writer pointer ─┘  seen by nobody; reused after a crash

The store does the durable steps and decides every race, since several processes may use it. What
can be shared stands above it: `publisher` gathers sends and hands them over in groups, `receiver`
reads ahead and keeps the window of acks. So a store has no thread that waits for rows, and no
buffer of its own but what makes it fast.

Three kinds of user, and how each is fenced:

- *Readers* need no right. They see rows up to the writer pointer, and never one above it.
- *The publisher* is the one with the highest epoch. `claim` takes the next one; every older writer
  raises `Fenced` from then on, and no row of it becomes readable any more. A store that belongs to
  one process (a folder) raises `Locked` if another process owns it, and fences within the process.
- *A consumer's receiver* is the one with the newest token, which `claim_consumer` takes.

Errors of drivers and of the operating system never escape: they are the cause of one of ours.
Every method may be called from any thread. Every method but `close` raises `Closed` once the store
is closed.

Invariants, which the suite in `tests/log/contract` checks of every store:

- Numbers that readers see are dense, in the order of reservation, and what they name never changes.
- `next` and pointers never go back; `first` neither; pointer < next.
- An append is wholly there or not at all, its marks included.
- Of a writer with a stale epoch nothing becomes readable, and nothing that is readable changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemill.batch import EncodedBody, Layout, LogBatch, SchemaVersions
from tidemill.closing import Closing
from tidemill.errors import TidemillError
from tidemill.files.queue.receipt import Durability
from tidemill.files.state.log_state import Mark
from tidemill.limits import FRAME_BODY_BYTES_MAX

__all__ = [
    "Capabilities",
    "ConsumerClaim",
    "ConsumerState",
    "Ends",
    "LogFrame",
    "LogStore",
    "LogWriter",
    "Mark",
    "NoteChange",
    "Reservation",
    "Withdrawn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """In what stores differ; the suite and the shared parts above go by it."""

    persistent: bool  # rows survive the end of the process
    many_processes: bool  # a publisher in another process fences this one; else it gets `Locked`
    poll_s: float | None  # how soon to look for new rows; None: `watch` tells of every one
    poll_s_max: float = 0.0  # ... and how late at most, when there was nothing for long


class Ends(NamedTuple):
    """The first row that can be read, and the number that the next one will get.

    >>> ends = Ends(first=1, next=4)
    >>> ends.next - ends.first  # how many rows there are
    3
    """

    first: int
    next: int


class LogFrame(NamedTuple):
    """Rows that are encoded once, at the sender's; only the number and the time are missing.

    The body holds the payload's columns alone, in the schema that `fingerprint` names. The store
    packs the frame's header (`batch.pack_header`) with first_seq, time_us and both keys 0.
    """

    body: EncodedBody
    fingerprint: int


class NoteChange(NamedTuple):
    """A fact that is written down if it still says what one thinks."""

    name: str
    value: str
    expected: str | None  # None: it is not there


class ConsumerState(NamedTuple):
    """Where a consumer stands: all rows up to `pointer` are done."""

    pointer: int
    token: int  # of the receiver that may move it; never used twice, not after a removal either


class ConsumerClaim(NamedTuple):
    """The right to move a consumer's pointer, until somebody else claims it."""

    name: str
    token: int
    pointer: int  # where the consumer stood when it was claimed


class Reservation:
    """Numbers that a writer handed out for one append."""

    __slots__ = ("first", "is_withdrawn", "rows")

    def __init__(self, first: int, rows: int) -> None:
        self.first = first
        self.rows = rows
        self.is_withdrawn = False  # set if an append with lower numbers failed

    @property
    def last(self) -> int:
        return self.first + self.rows - 1


class Withdrawn(Exception):
    """An append that failed because one with lower numbers did, and of which nothing is left.

    Raised by writers with several lanes; the publisher appends the same frames again, with numbers
    that it reserves anew. Callers never see it.
    """


class LogWriter(ABC):
    """The right to append, held under an epoch. Made by `LogStore.claim`.

    The publisher calls `reserve` and `append` for each group of sends. With more than one lane,
    `append` is called by several threads at once, one per lane, with numbers that `reserve` gave
    out in order; the appends may become durable in any order, and each returns only when the
    writer pointer covers its rows, without a hole below. `numbering.Numbering` keeps the books of
    that, for whoever wants it.
    """

    epoch: int
    lanes: int = 1  # how many appends may be under way at once (the shards of a server)
    lane_bytes_min: int = 0  # what has to wait for another lane to be worth it, beside one in use
    frame_bytes_max: int = FRAME_BODY_BYTES_MAX  # of one frame's body; sends are split below it
    frame_bytes_setting: str = ""  # what to change if one row alone is larger, for the message
    group_bytes: int = (
        8 * 1024 * 1024
    )  # of bodies that one append should hold; one send may be more

    @abstractmethod
    def mark(self, producer: str) -> Mark | None:
        """What is known of the producer's last send that is readable; None if it is new."""

    def turn_s(self, lane: int) -> float:  # noqa: ARG002
        """In how many seconds the lane may append again: 0 for at once. Never waits itself.

        A throttle (`writes_per_second_max`) answers here, before a group is gathered, so that the
        group grows while it waits.
        """
        return 0.0

    @abstractmethod
    def reserve(self, rows: int, after: int | None = None) -> Reservation:
        """So many numbers, behind those reserved before; costs no I/O.

        Called by one thread at a time, in the order in which sends are to be numbered. After
        `claim` numbers start behind the writer pointer; after a failed append, where that began.
        `after` is the last number of the reservation before, if its append is under way as far as
        the caller knows: raises `Withdrawn` if numbers do not go on behind it, for then an append
        has failed that the caller is yet to hear of, and sends would change places.
        """

    @abstractmethod
    def append(
        self,
        lane: int,
        reservation: Reservation,
        frames: Sequence[LogFrame],
        marks: Sequence[Mark] = (),
    ) -> Durability:
        """Write frames with the reserved numbers, and return once they are readable.

        The frames together are one atomic step, with their marks (whose ranges lie within). All
        rows get one time, which never decreases along the log. A commit whose outcome is unknown is
        resolved here: by looking, under a newer epoch that nobody but this writer can have taken.
        Temporary failures (a deadlock, a lost connection) are retried here, with pauses and a
        deadline. A group may be marks alone, without rows.

        If it raises, nothing of it is readable, now or later, and its numbers are free again:
        every reservation made before with higher ones is withdrawn, and appending under such a one
        raises `Withdrawn`. The exceptions are

        - `Fenced`: a newer epoch exists. Every later call raises it as well.
        - `OutcomeUnknown`: one could not look before the deadline. The writer is broken and raises
          it from every later call; a new `claim` resolves it. Also if a newer epoch exists, and
          rows with these numbers were given up since; later calls raise `Fenced` then.
        - `StorageFailed`: the writer is broken in the same way.
        """

    @abstractmethod
    def skip(
        self,
        reservation: Reservation,
        time_us: int,  # of the rows; those that come later are not older
        note: NoteChange,
        marks: Sequence[Mark] = (),
    ) -> Durability:
        """Let the reserved numbers count, though their rows are not here but in the archive.

        The writer pointer, marks and note are one atomic step, like an append; reading the rows
        here is `MissingRows` from then on. The reservation is the only one under way. Raises what
        `append` raises, and `Fenced` if the note is not as expected; nothing is changed then.
        """

    def give_up(self, failure: TidemillError) -> None:  # noqa: B027
        """Numbers were reserved that nobody will append, for a thread was interrupted: with several
        lanes, appends that wait for them raise `failure`, or something as fatal, as later ones do.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the right. Appends under way end first; later ones raise `Closed`."""


class LogStore(Closing, ABC):
    """One log, opened. Closing it closes its writers."""

    capabilities: Capabilities
    place: str  # what the log is called in messages: its path, or its URL without password

    @property
    @abstractmethod
    def versions(self) -> SchemaVersions:
        """The schema versions of the payload, as known here; frames of all of them can be read.

        Opening with a schema that adds nullable columns stores a new version durably, before the
        first frame that uses it. A frame that names a version which is not known here yet makes the
        store look again, and is `Corrupt` only then. Rows are given in the newest known version.
        """

    def versions_now(self) -> SchemaVersions:
        """The same as the log has them by now: another user may have stored one since."""
        return self.versions

    @abstractmethod
    def ends(self) -> Ends:
        """The first readable number and the next one to be given, as of now."""

    @abstractmethod
    def read(self, start: int, *, rows_max: int, bytes_max: int) -> list[LogBatch]:
        """Rows from `start` on, in order, as they lie in frames, up to the writer pointer.

        At most `rows_max` rows, and at most about `bytes_max` bytes beyond the first frame; at
        least one row if there is one. Empty if `start` is at or above `next`.

        Raises `Trimmed` if `start` is below the first row (also if it was trimmed in the middle of
        reading), `MissingRows` that names the numbers if some are not there (or were released, and
        are in the archive), and `Corrupt` that names the number and place of a frame that is
        damaged; rows in front of the damage are given first, by an earlier call or this one.
        """

    @abstractmethod
    def seq_at(self, time_us: int) -> int:
        """The first row written at `time_us` or later; `next` if there is none."""

    @abstractmethod
    def layout(self, start: int, end: int) -> Layout:
        """The frames, or what is stored together, that hold the rows from `start` up to `end`, the
        latter not included; what is trimmed, missing or not written yet is left out.
        """

    def watch(self, wakeup: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Call `wakeup` after rows became readable or a consumer was claimed or removed, until the
        function returned is called.

        `wakeup` may be called from any thread, under locks, more often than needed, and must not
        block. A store that is not told of all of that says so by `poll_s`.
        """
        return lambda: None

    @abstractmethod
    def claim(self) -> LogWriter:
        """Become the publisher: take the next epoch, which fences all older writers.

        What an older writer left above the writer pointer is removed in the same step, or can no
        longer become readable; its numbers are given again. Raises `Locked` if the log belongs to
        another process, `ReadOnly` if it cannot be written at all.
        """

    @abstractmethod
    def consumers(self) -> dict[str, ConsumerState]:
        """All consumers, by name."""

    @abstractmethod
    def claim_consumer(self, name: str, *, start: int) -> ConsumerClaim:
        """Take a new token of a consumer, which fences its older receivers.

        A consumer that is not there yet is made, durably, with its pointer at `start` − 1, so that
        `trim` respects it from now on; `start` is brought within first … next. Raises `InvalidName`
        if the name differs from an existing one by case alone.
        """

    @abstractmethod
    def move_pointer(self, claim: ConsumerClaim, pointer: int) -> None:
        """Store that all rows up to `pointer` are done; durable on return.

        A pointer at or below the stored one changes nothing. One at or above `next` is
        `InvalidInput`. Raises `Fenced` if there is a newer token, or the consumer was removed.
        """

    @abstractmethod
    def check_claim(self, claim: ConsumerClaim) -> None:
        """Raise `Fenced` if there is a newer token, or the consumer was removed.

        A receiver that waits asks now and then, as it may have nothing to store for long.
        """

    @abstractmethod
    def remove_consumer(self, name: str) -> None:
        """End a consumer; one that is not there changes nothing."""

    @abstractmethod
    def trim(self, before: int, *, force: bool = False) -> int:
        """Give up rows below `before`, and return the first number that is left.

        Stops at the least consumer's pointer + 1 unless forced, and at `next` in any case; never
        goes back. Decided in one atomic step, so that a consumer made meanwhile is either respected
        or starts behind. What readers hold stays valid. Raises `Locked` like `claim`.
        """

    @abstractmethod
    def begin_at(self, first: int) -> None:
        """Let a log that never had a row begin with this number: `first` and `next` become it.

        Done in one atomic step; doing it again changes nothing. Whoever publishes is fenced, or,
        in a folder, it raises `Locked`. `InvalidInput` if there are rows, or were.
        """

    def sync(self) -> None:
        """Make all rows last that can be read now, whatever their receipts said.

        An archive must not be ahead of its log after a power cut. Raises `Locked` and `ReadOnly`
        like `claim`.
        """
        return

    @abstractmethod
    def release(self, before: int) -> None:
        """Forget rows below `before`, which an archive holds from now on.

        The log still has them: `first` stays, and consumers may stand there. Reading them here is
        `MissingRows`, or gives them, as a store may give disk back later and by larger pieces. The
        caller vouches for the archive. Raises `Locked` like `claim`.
        """

    @abstractmethod
    def notes(self) -> dict[str, str]:
        """Small facts that belong to the log, by name: where its archive is."""

    @abstractmethod
    def set_note(self, name: str, value: str, *, expected: str | None) -> bool:
        """Store a fact durably if it is still `expected` (None: not there); False if it is not."""

    @abstractmethod
    def close(self) -> None:
        """Let go of everything; twice does no harm."""
