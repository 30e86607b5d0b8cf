"""Groups: consuming ends of a ring, each with a head of its own."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.errors import CallerError, Fenced, InvalidInput
from tidemill.limits import RING_GROUPS_MAX
from tidemill.names import check_unique
from tidemill.records.protocol.lock import Call, acquire, commit, look, release
from tidemill.records.protocol.memo import Memo
from tidemill.records.protocol.metadata import Group, Metadata
from tidemill.records.protocol.requests import Steps


def make_group(memo: Memo, call: Call, name: str, latest: bool) -> Steps[int]:
    """The id of a group; it is made if there is none of this name."""
    seen = yield from look(memo)
    while True:
        for group in seen.metadata.groups:
            if group.name == name:
                return group.id
        yield from _change(memo, call, lambda state, id: _with_group(state, id, name, latest))
        seen = yield from look(memo)


def remove_group(memo: Memo, call: Call, group_id: int) -> Steps[None]:
    """Remove a group, if it is still there."""
    if (yield from look(memo)).metadata.group(group_id) is not None:
        yield from _change(memo, call, lambda state, _: _without_group(state, group_id))


def _with_group(state: Metadata, id: int, name: str, latest: bool) -> tuple[Group, ...]:
    if any(group.name == name for group in state.groups):
        return state.groups  # somebody was faster
    check_unique(name, (group.name for group in state.groups), what="group")
    if len(state.groups) >= RING_GROUPS_MAX:
        raise InvalidInput(f"a ring has at most {RING_GROUPS_MAX} groups; remove one")
    return (*state.groups, Group(id, name, state.tail if latest else state.head))


def _without_group(state: Metadata, group_id: int) -> tuple[Group, ...]:
    left = tuple(group for group in state.groups if group.id != group_id)
    if not left:
        raise InvalidInput("the last group of a ring cannot be removed: make another one first")
    return left


def _change(
    memo: Memo, call: Call, changed: Callable[[Metadata, int], tuple[Group, ...]]
) -> Steps[None]:
    """Change the groups under the lock; the token is the id of a new group."""
    while True:
        held = yield from acquire(memo, call, lambda _: True)
        if held is None:
            return  # never: a call is always ready for it
        try:
            groups = changed(held.metadata, held.token)
        except CallerError:
            yield from release(memo, held)
            raise
        try:
            yield from commit(memo, call, held, held.metadata.regrouped(groups))
        except Fenced:
            if not (yield from call.begin_again()):
                raise
        else:
            return
