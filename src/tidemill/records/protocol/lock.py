"""The lock of a ring: how it is granted, when it may be broken, and how an operation commits.

    acquire ──▶ the lock is free ───────────▶ write a grant: token = fence + 1
            ├─▶ it is held, and not expired ─▶ wait, look again; `Locked` when patience ends
            └─▶ it is held, and expired ─────▶ write a grant over it: the old one is aborted
    commit  ──▶ write the new state without the grant, if the record is the one of the grant
            └─▶ it is not: look. Committed after all, or aborted by whoever broke the lock

A lock is expired when it is `lock_ms` old by the store's clock, or when this process has seen the
same token for that long on its own clock, which never goes back. Expiry decides who waits, never
what is right: a holder that is slower than everybody thought finds that it cannot commit.

Invariant: every token that was granted ends once: committed, or aborted by its holder or by the
next grant. The end stands in the metadata record from the moment at which it happens.

A store that loses writes which it had confirmed gives tokens twice. Then a grant is known by its
nonce, an end by its operation, and a buffer by what is in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemill.errors import (
    Corrupt,
    Fenced,
    Locked,
    NotAQueue,
    OutcomeUnknown,
    RingExhausted,
    TidemillError,
    Unavailable,
    UnknownFormat,
)
from tidemill.limits import INT64_MAX
from tidemill.records.protocol.memo import Memo, Seen
from tidemill.records.protocol.metadata import (
    Grant,
    Metadata,
    What,
    decode_metadata,
)
from tidemill.records.protocol.requests import GetMetadata, Now, ReplaceMetadata, Steps, Wait

PAUSE_S_MIN = 0.001
PAUSE_S_MAX = 0.05


@dataclass(slots=True)
class Call:
    """One call of a user, and how long it may take."""

    operation: bytes  # 16 bytes of what the caller calls it
    nonce: bytes  # 16 bytes that no other call has
    lock_ms: int
    patience_s: float  # to wait for other holders of the lock
    # Whether to wait longer for a lock whose age nobody tells, until it has expired: whoever has
    # just come has to see all of its time, and might end before that for ever.
    outlasts: bool = False
    wait_s: float = 0.0  # to wait for an entry, or for room
    # Whether to begin again after the lock was broken. An operation whose id others know does
    # not: whoever was told that it is aborted may have done it in its place.
    again: bool = True
    # The tokens of grants that were asked for, and whose answers were lost.
    in_doubt: set[int] = field(default_factory=set)
    # When this call first had to wait for an entry or for room, and for the lock since then.
    idle_since_s: float | None = None
    locked_since_s: float | None = None
    pause_s: float = PAUSE_S_MIN

    def pause_idle(self) -> Steps[bool]:
        """Wait a little for an entry or for room, unless the call has waited enough for it."""
        now_s = yield Now()
        if self.idle_since_s is None:
            self.idle_since_s = now_s
        self.locked_since_s = None
        return (yield from self._pause(self.idle_since_s + self.wait_s - now_s))

    def pause(self, least_s: float = 0.0) -> Steps[bool]:
        """Wait a little for others, unless the call's patience, or `least_s`, is at its end."""
        now_s = yield Now()
        if self.locked_since_s is None:
            self.locked_since_s = now_s
        patience_s = max(self.patience_s, least_s)
        return (yield from self._pause(self.locked_since_s + patience_s - now_s))

    def was_aborted(self, state: Metadata) -> bool:
        """Whether somebody may have been told that it is aborted: one of the grants in doubt was
        given, and has ended. One that is forgotten may have been.
        """
        standing = 0 if state.grant is None else state.grant.token
        for token in self.in_doubt:
            if token <= state.fence and token != standing:
                ended = state.end_of_token(token)
                if ended is None or ended.operation == self.operation:
                    return True
        return False

    def begin_again(self) -> Steps[bool]:
        """Whether to do it again, after the lock was broken and nothing was changed."""
        return self.again and (yield from self.pause())

    def _pause(self, left_s: float) -> Steps[bool]:
        if left_s <= 0:
            return False
        yield Wait(min(self.pause_s, left_s))
        self.pause_s = min(self.pause_s * 2, PAUSE_S_MAX)
        return True


@dataclass(frozen=True, slots=True)
class Held:
    """The lock, as the metadata record shows it."""

    metadata: Metadata  # with the grant in it
    generation: int

    @property
    def token(self) -> int:
        """The token of the grant."""
        return self.metadata.fence


def look(memo: Memo) -> Steps[Seen]:
    """Read the metadata record."""
    record = yield GetMetadata()
    if record is None:
        memo.forget()
        raise NotAQueue(f"ring {memo.name!r} is gone: it was removed")
    try:
        metadata = decode_metadata(record.data)
    except (Corrupt, UnknownFormat) as error:
        memo.forget()
        raise type(error)(f"ring {memo.name!r}: {error}") from error
    if metadata.ring != memo.ring:
        memo.forget()
        raise NotAQueue(
            f"ring {memo.name!r} was removed, and another one made in its place: open that one"
        )
    memo.seen = Seen(metadata, record.generation, record.age_us)
    return memo.seen


def check_held(memo: Memo, held: Held) -> Steps[None]:
    """Raise `Fenced` if the lock was broken, and `NotAQueue` if the ring is gone: either explains
    what would be damage otherwise.
    """
    if (yield from look(memo)).metadata.grant != held.metadata.grant:
        raise _fenced(memo)


def acquire(memo: Memo, call: Call, ready: Callable[[Metadata], bool]) -> Steps[Held | None]:
    """The lock, in a state that is `ready`; None if it is not, when the call has waited enough."""
    while True:
        # What is remembered may be old; only what was just read is a reason to wait, or to give up.
        seen, fresh = memo.seen, False
        if seen is None:
            seen, fresh = (yield from look(memo)), True
        grant = seen.metadata.grant
        if grant is not None and grant.nonce == call.nonce:
            # Our own request, whose answer was lost.
            return Held(seen.metadata, seen.generation)
        if not call.again and call.was_aborted(seen.metadata):
            memo.forget()
            raise _fenced(memo)
        if not ready(seen.metadata):
            memo.seen = None
            if fresh and not (yield from call.pause_idle()):
                return None
            continue
        if grant is not None and not (yield from expired(memo, seen)):
            memo.seen = None
            if fresh and not (yield from call.pause(_until_expiry_s(call, seen, grant))):
                raise _locked(memo, grant)
            continue
        held = yield from _request(memo, call, seen)
        if held is not None:
            return held
        if fresh and not (yield from call.pause()):
            raise Locked(
                f"ring {memo.name!r} is in such demand that others were always faster; try again"
            )


def expired(memo: Memo, seen: Seen) -> Steps[bool]:
    """Whether the lock that somebody holds may be broken."""
    grant = seen.metadata.grant
    if grant is None:
        return True
    if seen.age_us is not None and seen.age_us >= grant.lock_ms * 1_000:
        return True
    now_s = yield Now()
    if memo.watched is None or memo.watched[0] != grant.token:
        memo.watched = (grant.token, now_s)
    return now_s - memo.watched[1] >= grant.lock_ms / 1_000


def _until_expiry_s(call: Call, seen: Seen, grant: Grant) -> float:
    """How long to wait at least for a lock that somebody holds."""
    if call.outlasts and seen.age_us is None:
        return grant.lock_ms / 1_000 + PAUSE_S_MAX
    return 0.0


def _request(memo: Memo, call: Call, seen: Seen) -> Steps[Held | None]:
    """Write a grant; None if the record had changed, or it is not known whether it was written."""
    if seen.metadata.fence >= INT64_MAX:
        raise RingExhausted(
            f"ring {memo.name!r} has used up its tokens, all 2^63 of them: move to another ring"
        )
    grant = Grant(seen.metadata.fence + 1, call.nonce, call.operation, call.lock_ms)
    granted = seen.metadata.granted(grant)
    memo.seen = None  # it is not the state any more, or never was
    try:
        generation = yield ReplaceMetadata(granted.encode(), seen.generation)
    except OutcomeUnknown:
        call.in_doubt.add(grant.token)
        return None  # whoever looks next sees the nonce, or how it ended
    return None if generation is None else Held(granted, generation)


def commit(memo: Memo, call: Call, held: Held, changed: Metadata) -> Steps[None]:
    """Make a change real, in one step; `Fenced` if the lock was broken before, and nothing is."""
    data = changed.encode()
    generation = held.generation
    unknown: OutcomeUnknown | None = None
    attempts = 0
    while True:
        memo.seen = None
        attempts += 1
        try:
            answer = yield ReplaceMetadata(data, generation)
        except Unavailable:
            # Nothing was done this time, but an earlier attempt may still be.
            if unknown is None:
                if not (yield from call.pause()):
                    raise
                continue
        except OutcomeUnknown as error:
            unknown = error
        except TidemillError as error:
            if unknown is None:
                raise
            # What is refused now was sent before as well, and that may still be written.
            raise _lost(memo, error) from error
        else:
            if answer is not None:
                memo.seen = Seen(changed, answer, 0)
                return
        # Nobody but the record can tell what became of it.
        seen = yield from _look_hard(memo, call, unknown)
        ended = seen.metadata.end_of_token(held.token)
        if ended is not None and ended.operation != call.operation:
            ended = None  # a store that lost its last writes has given the token to two
        if ended is not None and ended.what != What.ABORTED:
            return
        if seen.metadata.grant != held.metadata.grant:
            memo.forget()
            raise _broken(memo, ended is not None, unknown)
        if attempts > 1 and unknown is not None:
            try:
                goes_on = yield from call.pause()
            except TidemillError as error:  # The ring was closed, say.
                raise _lost(memo, error) from error
            if not goes_on:
                raise _in_doubt(memo, "writes are not answered") from unknown
        generation = seen.generation


def release(memo: Memo, held: Held) -> Steps[None]:
    """Give the lock back with nothing changed; if that fails it expires."""
    memo.forget()
    try:
        yield ReplaceMetadata(held.metadata.released().encode(), held.generation)
    except (Unavailable, OutcomeUnknown):
        pass  # what made the operation fail is the error to be told


def _look_hard(memo: Memo, call: Call, unknown: OutcomeUnknown | None) -> Steps[Seen]:
    """Look, and try again for a while if the store is away: more depends on it than usual."""
    try:
        while True:
            try:
                return (yield from look(memo))
            except Unavailable:
                if not (yield from call.pause()):
                    raise
    except TidemillError as error:
        # Whatever keeps from looking, also that the ring was closed, leaves it in doubt.
        if unknown is None:
            raise
        raise _lost(memo, error) from error


def _broken(memo: Memo, aborted: bool, unknown: OutcomeUnknown | None) -> TidemillError:
    if aborted or unknown is None:
        return _fenced(memo)
    return _in_doubt(
        memo, "the answer was lost, and so many others have ended that it is forgotten"
    )


def _lost(memo: Memo, error: TidemillError) -> OutcomeUnknown:
    return _in_doubt(memo, f"the answer was lost, and nobody could make sure since: {error}")


def _in_doubt(memo: Memo, why: str) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"whether an operation on ring {memo.name!r} was committed is not known, ask for its "
        f"outcome later: {why}"
    )


def _fenced(memo: Memo) -> Fenced:
    return Fenced(
        f"an operation on ring {memo.name!r} took longer than its lock_ms, and another client "
        "broke its lock; it changed nothing"
    )


def _locked(memo: Memo, grant: Grant) -> Locked:
    return Locked(
        f"ring {memo.name!r} is locked by another client (token {grant.token}), which may hold the "
        f"lock for {grant.lock_ms} ms before it can be broken; try again"
    )
