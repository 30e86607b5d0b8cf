"""Faults that a shovel could have, put back one by one: its crash states must find each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.faults.crash_states import enumerate_states
from tests.faults.driven_pair import DrivenPair
from tests.faults.test_shovel_crash_states import FILLS
from tidemill.errors import TidemillError
from tidemill.files.commit.operation import Push, Retire
from tidemill.files.folder.folder import Folder
from tidemill.files.recovery import adoption
from tidemill.files.shovel import handover, shovel
from tidemill.files.shovel.remainder import Chunk, Remainder

Patch: TypeAlias = pytest.MonkeyPatch


def _judge(what: str) -> None:
    fill, end = FILLS[what]
    pair = DrivenPair(fill, end=end)
    pair.shovel()
    for state in enumerate_states(pair.fs.trace, budget=80):
        pair.judge(state.file_system(), state.marks, power_cut=True)


def _taken_before_it_is_pushed(patch: Patch) -> None:
    whole = Remainder.choose

    def choose(self: Remainder) -> Chunk | None:
        chunk = whole(self)
        if chunk is not None:
            self.consume(chunk)
        return chunk

    patch.setattr(Remainder, "choose", choose)
    patch.setattr(Remainder, "consume", _once_only(Remainder.consume))


def _once_only(consume: Callable[[Remainder, Chunk], None]) -> Callable[[Remainder, Chunk], None]:
    done: list[Chunk] = []

    def wrapped(self: Remainder, chunk: Chunk) -> None:
        if not any(chunk is one for one in done):
            done.append(chunk)
            consume(self, chunk)

    return wrapped


def _pushed_without_a_sync(patch: Patch) -> None:
    patch.setattr(shovel, "Push", lambda *, sync, frames: Push(sync=False, frames=frames))


def _left_before_it_is_adopted(patch: Patch) -> None:
    adopt, detach = handover._adopt, handover._detach
    source: list[Folder] = []

    def detached(folder: Folder, cursor: Any) -> Any:
        source.append(folder)
        return detach(folder, cursor)

    def adopted(folder: Folder, lot: Any) -> bool:
        source[-1].commit(Retire(lot.numbers, live={0: 0}, arrived=lot.arrived))
        return adopt(folder, lot)

    def left(folder: Folder, lot: Any) -> None:
        folder.journal.remove(lot.numbers)

    patch.setattr(handover, "_detach", detached)
    patch.setattr(handover, "_adopt", adopted)
    patch.setattr(handover, "_leave", left)


def _interrupted_adoptions_stay_as_they_are(patch: Patch) -> None:
    whole = adoption.settle

    def settle(fs: Any, folder: Any) -> Any:
        listed = fs.list_folder
        fs.list_folder = lambda path: [one for one in listed(path) if ".adopted" not in one]
        try:
            return whole(fs, folder)
        finally:
            fs.list_folder = listed

    patch.setattr("tidemill.files.recovery.recovery.settle", settle)


def _cuts_stay_behind(patch: Patch) -> None:
    patch.setattr(handover._Plan, "_cut", lambda self, cut: cut._replace(arrived=0))


def _files_are_not_linked_for_good(patch: Patch) -> None:
    """The folder is not synced between the links and the segment that names them."""
    whole = handover._adopt

    def adopt(folder: Folder, lot: Any) -> bool:
        sync = folder.fs.sync_folder
        folder.fs.sync_folder = lambda path: None  # type: ignore[method-assign]
        try:
            return whole(folder, lot)
        finally:
            folder.fs.sync_folder = sync  # type: ignore[method-assign]

    patch.setattr(handover, "_adopt", adopt)


class Mutant(NamedTuple):
    """A fault, and the shovel that it must show in."""

    apply: Callable[[Patch], None]
    what: str


MUTANTS: dict[str, Mutant] = {
    "items are taken before they are pushed": Mutant(_taken_before_it_is_pushed, "into items"),
    "what was pushed is not synced": Mutant(_pushed_without_a_sync, "of a fork"),
    "the source lets go too early": Mutant(_left_before_it_is_adopted, "into nothing"),
    "names are not synced": Mutant(_files_are_not_linked_for_good, "into nothing"),
    "opening does not finish it": Mutant(_interrupted_adoptions_stay_as_they_are, "into nothing"),
    "consumed rows come back": Mutant(_cuts_stay_behind, "into nothing"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_fault_of_a_shovel_is_found(name: str, monkeypatch: Patch) -> None:
    mutant = MUTANTS[name]
    mutant.apply(monkeypatch)
    with pytest.raises((AssertionError, TidemillError)):
        _judge(mutant.what)
    monkeypatch.undo()
    _judge(mutant.what)
