"""Faults of the original, and some that suggest themselves, put back: the suites must find each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import pytest

import tidemill as tm
from tests.records import test_ring_creation
from tests.records.pairs import asked_for, overtaken_reader, pair
from tests.records.schedules import explore, run_random
from tidemill.errors import Fenced, OutcomeUnknown
from tidemill.records.protocol import buffers, creation, dequeueing, enqueueing, lock, reading
from tidemill.records.protocol.block import Block
from tidemill.records.protocol.geometry import Geometry
from tidemill.records.protocol.lock import Call, Held, look
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.metadata import Metadata
from tidemill.records.protocol.requests import CreateMetadata, ReplaceMetadata, Steps
from tidemill.records.protocol.values import Taken

pytestmark = pytest.mark.slow

Patch: TypeAlias = pytest.MonkeyPatch


def _every_order(*names: tuple[str, str]) -> Callable[[], None]:
    def check() -> None:
        for name, mode in names:
            for _ in explore(pair(name, mode)):
                pass

    return check


def _random(count: int) -> Callable[[], None]:
    def check() -> None:
        for seed in range(count):
            run_random(seed)

    return check


def _overtaken_reader() -> None:
    for _ in explore(overtaken_reader()):
        pass


def _asked_for(doubt: str) -> Callable[[], None]:
    def check() -> None:
        for _ in explore(asked_for(doubt)):
            pass

    return check


def _creation() -> None:
    test_ring_creation.test_a_crash_at_any_step_of_making_a_ring_leaves_one_that_can_be_opened(None)


# The faults of the original.


def _the_client_and_not_the_token_is_compared(patch: Patch) -> None:
    def commit(memo: Memo, call: Call, held: Held, changed: Metadata) -> Steps[None]:
        seen = yield from look(memo)
        grant = seen.metadata.grant
        memo.seen = None
        if grant is None or grant.operation != call.operation:
            raise Fenced("somebody else has the lock")
        if (yield ReplaceMetadata(changed.encode(), seen.generation)) is None:
            raise Fenced("somebody else has the lock")

    patch.setattr(enqueueing, "commit", commit)
    patch.setattr(dequeueing, "commit", commit)


def _a_dequeue_is_not_fenced(patch: Patch) -> None:
    def commit(memo: Memo, call: Call, held: Held, changed: Metadata) -> Steps[None]:
        while True:
            seen = yield from look(memo)
            memo.seen = None
            heads = {group.id: group.head for group in changed.groups}
            groups = tuple(
                group._replace(head=max(group.head, heads[group.id]))
                for group in seen.metadata.groups
            )
            moved = replace(seen.metadata, groups=groups, grant=None)
            if (yield ReplaceMetadata(moved.encode(), seen.generation)) is not None:
                return

    patch.setattr(dequeueing, "commit", commit)


def _the_offset_of_a_slot_is_not_checked(patch: Patch) -> None:
    def by_place(shape: Geometry, first: int, end: int, stored: list[Any]) -> Taken:
        values: list[bytes] = []
        for number, found in zip(shape.blocks(first, end), stored, strict=True):
            begin = max(first - number * shape.slots, 0)
            stop = min(end - number * shape.slots, shape.slots)
            shift = found.block.first % shape.slots
            values += found.block.values[max(begin - shift, 0) : stop - shift]
        return Taken(first, bytes(len(values)), values)

    patch.setattr(reading, "gather", by_place)
    patch.setattr(dequeueing, "gather", by_place)


def _an_overwrite_destroys_the_head_first(patch: Patch) -> None:
    patch.setattr(Geometry, "records", property(lambda self: -(-self.capacity // self.slots)))


def _the_mark_is_written_elsewhere(patch: Patch) -> None:
    compose = buffers.compose

    def unmarked(*args: Any) -> Block:
        return replace(compose(*args), mark=0)

    patch.setattr(buffers, "compose", unmarked)
    patch.setattr(buffers, "may_be_of_another", lambda held, block: block.mark >= held.token)


def _a_ring_is_made_in_two_steps(patch: Patch) -> None:
    make = creation.make_ring

    def in_two(
        name: str, ring: bytes, shape: Geometry, apart: str | None, call: Call
    ) -> Steps[Metadata]:
        generation = yield CreateMetadata(b"")
        steps = make(name, ring, shape, apart, call)
        request = next(steps)
        assert isinstance(request, CreateMetadata)
        yield ReplaceMetadata(request.data, generation)
        found = yield from creation.open_ring(name, apart)
        assert found is not None
        return found

    patch.setattr(creation, "make_ring", in_two)


# Others.


def _the_mark_is_not_checked(patch: Patch) -> None:
    patch.setattr(buffers, "may_be_of_another", lambda held, block: False)


def _no_record_is_spare(patch: Patch) -> None:
    patch.setattr(
        Geometry,
        "records",
        property(lambda self: (self.capacity + self.slots - 2) // self.slots + 1),
    )


def _a_lock_never_expires(patch: Patch) -> None:
    def never(memo: Memo, seen: Any) -> Steps[bool]:
        yield from ()
        return False

    patch.setattr(lock, "expired", never)


def _a_lost_answer_is_taken_for_a_no(patch: Patch) -> None:
    commit = lock.commit

    def hasty(memo: Memo, call: Call, held: Held, changed: Metadata) -> Steps[None]:
        steps = commit(memo, call, held, changed)
        request = next(steps)
        try:
            answer = yield request
        except OutcomeUnknown as error:
            raise Fenced("it will have failed") from error
        yield from _go_on(steps, answer)

    patch.setattr(enqueueing, "commit", hasty)
    patch.setattr(dequeueing, "commit", hasty)


def _a_lost_answer_is_taken_for_a_yes(patch: Patch) -> None:
    commit = lock.commit

    def hopeful(memo: Memo, call: Call, held: Held, changed: Metadata) -> Steps[None]:
        steps = commit(memo, call, held, changed)
        request = next(steps)
        try:
            answer = yield request
        except OutcomeUnknown:
            return
        yield from _go_on(steps, answer)

    patch.setattr(enqueueing, "commit", hopeful)
    patch.setattr(dequeueing, "commit", hopeful)


def _go_on(steps: Steps[None], answer: Any) -> Steps[None]:
    try:
        request = steps.send(answer)
        while True:
            request = steps.send((yield request))
    except StopIteration:
        return


def _the_fastest_group_says_what_is_full(patch: Patch) -> None:
    patch.setattr(Metadata, "head", property(lambda self: max(group.head for group in self.groups)))


def _what_was_aborted_is_tried_again(patch: Patch) -> None:
    patch.setattr(Call, "begin_again", Call.pause)


def _a_grant_in_doubt_is_asked_for_again_though_it_was_aborted(patch: Patch) -> None:
    patch.setattr(Call, "was_aborted", lambda call, state: False)


class Mutant(NamedTuple):
    put_back: Callable[[Patch], None]
    check: Callable[[], None]


MUTANTS = [
    Mutant(
        _the_client_and_not_the_token_is_compared, _every_order(("put and put", "two expiries"))
    ),
    Mutant(_a_dequeue_is_not_fenced, _every_order(("take and take", "two expiries"))),
    Mutant(_the_offset_of_a_slot_is_not_checked, _overtaken_reader),
    Mutant(
        _an_overwrite_destroys_the_head_first,
        _every_order(("overwrite and overwrite, wrapped", "two expiries")),
    ),
    Mutant(_the_mark_is_written_elsewhere, _every_order(("put and put", "two expiries"))),
    Mutant(_a_ring_is_made_in_two_steps, _creation),
    Mutant(_the_mark_is_not_checked, _every_order(("put and put", "two expiries"))),
    Mutant(_no_record_is_spare, _every_order(("overwrite and overwrite, wrapped", "two expiries"))),
    Mutant(_a_lock_never_expires, _random(50)),
    Mutant(_a_lost_answer_is_taken_for_a_no, _every_order(("put and put", "lost answer"))),
    Mutant(_a_lost_answer_is_taken_for_a_yes, _every_order(("put and put", "lost request"))),
    Mutant(_what_was_aborted_is_tried_again, _asked_for("nothing")),
    Mutant(_a_grant_in_doubt_is_asked_for_again_though_it_was_aborted, _asked_for("lost answer")),
    Mutant(_the_fastest_group_says_what_is_full, _random(300)),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.put_back.__name__[1:])
def test_a_fault_that_is_put_back_is_found(mutant: Mutant, monkeypatch: Patch) -> None:
    mutant.put_back(monkeypatch)
    with pytest.raises((AssertionError, tm.TidemillError)):
        mutant.check()
