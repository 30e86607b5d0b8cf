"""The faults of the original put back one by one, and some of our own: the suite finds each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import tidemill as tm
from tests.counters import (
    test_counting,
    test_forgetting,
    test_ledger,
    test_merging,
    test_strangers,
)
from tests.counters.nodes import node
from tests.counters.test_simulator import simulate
from tidemill.counters import Ledger, Message, Node, Replica
from tidemill.counters.counting import Counting
from tidemill.counters.forgetting import Forgotten
from tidemill.counters.journal import Journal
from tidemill.counters.knowledge import Knowledge
from tidemill.counters.message import EMPTY, OWN, Flags, Ints, Parts
from tidemill.counters.state import State

pytestmark = pytest.mark.slow

Patch = pytest.MonkeyPatch


# The checks: parts of the other suites, small enough to run for each mutant.


def _schedules(path: Path) -> None:
    simulate(range(400))


def _own_writes(path: Path) -> None:
    one = node("a")
    for number in range(1, 4):
        one.upsert("x", 1)
        assert one.get("x") == number


def _lost_folder(path: Path) -> None:
    test_ledger.test_a_lost_folder_is_a_new_incarnation_and_the_old_part_stays(path)


def _stale_peer(path: Path) -> None:
    test_merging.test_a_delete_reaches_everybody_and_a_stale_peer_does_not_undo_it()


def _revived(path: Path) -> None:
    suite = test_counting.TestExpiry()
    suite.setup_method()
    suite.test_collecting_spares_what_was_revived()


def _clocks(path: Path) -> None:
    test_merging.test_the_last_ttl_wins_whatever_the_clocks_say()


def _restart(path: Path) -> None:
    test_ledger.test_a_restart_keeps_everything_and_the_incarnation(path)


def _saved_first(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        test_ledger.test_what_is_sent_was_saved_before(path, patch)


def _counting_again(path: Path) -> None:
    test_merging.test_counting_again_reaches_those_who_did_not_forget_yet()


def _forgetting(path: Path) -> None:
    test_merging.test_dead_parts_go_once_everybody_knows_and_do_not_come_back()


def _stranger(path: Path) -> None:
    test_forgetting.test_a_stranger_hears_of_a_delete_that_everybody_else_forgot()


def _removed_part(path: Path) -> None:
    test_forgetting.test_a_part_of_a_removed_node_that_comes_by_a_stranger_stays_deleted()


def _old_ttl(path: Path) -> None:
    test_strangers.test_a_ttl_of_a_stranger_that_may_be_old_holds_everywhere()


def _told_everything(path: Path) -> None:
    test_strangers.test_one_who_was_told_everything_tells_it_to_those_who_have_not_heard()


def _rest(path: Path) -> None:
    for seed in range(10):
        test_strangers.test_in_whatever_order_they_meet_they_agree_and_rest(seed, more=0)


def _chain(path: Path) -> None:
    test_forgetting.test_one_who_has_dropped_it_tells_the_next_that_all_hold_it()


# The faults of the original.


def _reads_are_cached(patch: Patch) -> None:
    get = Counting.get
    cache: dict[str, int] = {}
    patch.setattr(Counting, "get", lambda self, name: cache.setdefault(name, get(self, name)))


def _lost_sends_are_not_sent_again(patch: Patch) -> None:
    delta = Node.delta

    def sure(self: Node, peer: Replica) -> Message | None:
        message = delta(self, peer)
        if message is not None:
            knowledge = self.state.knowledge
            number = knowledge.find(peer)
            knowledge.known[number] = np.maximum(knowledge.known[number], knowledge.versions)
        return message

    patch.setattr(Node, "delta", sure)


def _a_restarted_peer_is_taken_for_the_one_before(patch: Patch) -> None:
    held_by = Node._held_by

    def of_any_life(self: Node, peer: Replica) -> Ints:
        knowledge = self.state.knowledge
        lives = [n for n, one in enumerate(knowledge.replicas) if one.node == peer.node]
        return np.maximum(held_by(self, peer), knowledge.known[lives].max(axis=0))

    patch.setattr(Node, "_held_by", of_any_life)
    patch.setattr(Node, "_check_since", lambda self, message, local: None)


def _a_restarted_node_counts_from_nothing(patch: Patch) -> None:
    patch.setattr("tidemill.counters.ledger.new_replica", lambda node: Replica(node, 1))


def _the_version_is_stored_before_the_value(patch: Patch) -> None:
    write_own = State.write_own

    def torn(self: State, counters: Ints, values: Ints, *, anew: Ints = EMPTY) -> None:
        rows = self.table.find(counters, OWN)
        old = self.table.value[rows]
        write_own(self, counters, np.where(rows >= 0, old, values), anew=anew)

    patch.setattr(State, "write_own", torn)


def _deleted_is_forgotten(patch: Patch) -> None:
    def empty(self: State, counters: Ints) -> None:
        for counter in counters.tolist():
            for row in self.table.chain(counter):
                self.table.drop_part(row)
        self.is_changed = True

    patch.setattr(State, "empty", empty)


def _collecting_goes_by_the_first_ttl(patch: Patch) -> None:
    expire_at = State.expire_at
    first: dict[int, int] = {}

    def noted(self: State, counters: Ints, time_us: int) -> None:
        for counter in counters.tolist():
            first.setdefault(counter, time_us)
        expire_at(self, counters, time_us)

    def delete(self: Counting) -> int:
        past = [one for one, time_us in first.items() if time_us <= self._now_ns() // 1_000]
        self.state.empty(np.array(past, dtype=np.int64))
        return len(past)

    patch.setattr(State, "expire_at", noted)
    patch.setattr(Counting, "delete_expired", delete)


def _versions_are_wall_clocks(patch: Patch) -> None:
    update_ttl = Counting.update_ttl

    def at_the_time(self: Counting, name: str, time_us: int | None) -> None:
        self.state.edition = self._now_ns() // 1_000
        update_ttl(self, name, time_us)

    patch.setattr(Counting, "update_ttl", at_the_time)


def _turns_are_wall_clocks(patch: Patch) -> None:
    seal = Node.seal

    def at_the_time(self: Node) -> Message | None:
        if self.is_unsealed:
            self.state.turn = self._now_ns() // 10**9
        return seal(self)

    patch.setattr(Node, "seal", at_the_time)


def _a_full_channel_drops_updates(patch: Patch) -> None:
    parts = Node._parts

    def few(
        self: Node, chosen: Flags, held: Ints | None = None, peer: Replica | None = None
    ) -> Parts:
        all_of_them = parts(self, chosen, held, peer)
        if held is None:
            return all_of_them
        return Parts._make(column[:1] for column in all_of_them)

    patch.setattr(Node, "_parts", few)


def _nothing_is_persistent(patch: Patch) -> None:
    patch.setattr(Journal, "append", lambda self, message: None)


# Faults that ours could have.


def _sent_before_it_is_saved(patch: Patch) -> None:
    def made(self: Ledger, peer: Replica) -> Message | None:
        with self._mutex:
            self._seal()
            return self._node.delta(peer)

    patch.setattr(Ledger, "_made", made)


def _the_dead_are_forgotten_at_once(patch: Patch) -> None:
    def at_once(self: Knowledge) -> Ints:
        return np.full(len(self.replicas), 2**62)

    patch.setattr(Knowledge, "stable", at_once)


def _a_greeting_counts_as_everything(patch: Patch) -> None:
    learn = Knowledge.learn

    def believe(self: Knowledge, message: Message, local: Ints) -> bool:
        self.hold(message, local)
        return learn(self, message, local)

    patch.setattr(Knowledge, "learn", believe)


def _generations_begin_anew(patch: Patch) -> None:
    drop = Forgotten.drop

    def without_own(self: Forgotten, *what: Any) -> None:
        drop(self, *what)
        self.generations[OWN] = 0

    patch.setattr(Forgotten, "drop", without_own)


def _strangers_are_told_no_more_than_others(patch: Patch) -> None:
    patch.setattr(Node, "_missed", lambda self, peer: 0)


def _nothing_is_doubted(patch: Patch) -> None:
    def nothing(self: Forgotten, whose: Ints, numbers: Ints) -> Flags:
        return np.zeros(len(whose), dtype=np.bool_)

    patch.setattr(Forgotten, "may_be_dead", nothing)
    patch.setattr(Forgotten, "may_be_old", nothing)


def _what_others_dropped_is_not_taken_over(patch: Patch) -> None:
    patch.setattr(Forgotten, "inherit", lambda self, turn, drops, local: None)


def _every_drop_is_news(patch: Patch) -> None:
    patch.setattr(Forgotten, "hear", lambda self, last, local: True)


def _those_in_need_are_not_told_of_others(patch: Patch) -> None:
    def own(self: Knowledge, has_dead: bool) -> Ints:
        return np.array([has_dead] + [0] * (len(self.replicas) - 1))

    patch.setattr(Knowledge, "needy", own)


def _what_was_dropped_is_taken_again(patch: Patch) -> None:
    def nothing(self: State, owner: Ints, version: Ints, by: Ints, by_version: Ints) -> Flags:
        return np.zeros(len(owner), dtype=np.bool_)

    patch.setattr(State, "covers", nothing)


class Mutant(NamedTuple):
    put_back: Callable[[Patch], None]
    check: Callable[[Path], None]


MUTANTS = [
    Mutant(_reads_are_cached, _own_writes),
    Mutant(_lost_sends_are_not_sent_again, _schedules),
    Mutant(_a_restarted_peer_is_taken_for_the_one_before, _schedules),
    Mutant(_a_restarted_node_counts_from_nothing, _lost_folder),
    Mutant(_the_version_is_stored_before_the_value, _schedules),
    Mutant(_deleted_is_forgotten, _stale_peer),
    Mutant(_deleted_is_forgotten, _schedules),
    Mutant(_collecting_goes_by_the_first_ttl, _revived),
    Mutant(_versions_are_wall_clocks, _clocks),
    Mutant(_turns_are_wall_clocks, _schedules),
    Mutant(_a_full_channel_drops_updates, _schedules),
    Mutant(_nothing_is_persistent, _restart),
    Mutant(_sent_before_it_is_saved, _saved_first),
    Mutant(_the_dead_are_forgotten_at_once, _forgetting),
    Mutant(_a_greeting_counts_as_everything, _schedules),
    Mutant(_generations_begin_anew, _counting_again),
    Mutant(_what_was_dropped_is_taken_again, _schedules),
    Mutant(_strangers_are_told_no_more_than_others, _stranger),
    Mutant(_nothing_is_doubted, _removed_part),
    Mutant(_nothing_is_doubted, _old_ttl),
    Mutant(_those_in_need_are_not_told_of_others, _chain),
    Mutant(_what_others_dropped_is_not_taken_over, _told_everything),
    Mutant(_every_drop_is_news, _rest),
]
CHECKS = list(dict.fromkeys(mutant.check for mutant in MUTANTS))


@pytest.mark.parametrize(
    "mutant", MUTANTS, ids=lambda mutant: f"{mutant.put_back.__name__[1:]}-{mutant.check.__name__}"
)
def test_a_fault_that_is_put_back_is_found(
    mutant: Mutant, tmp_path: Path, monkeypatch: Patch
) -> None:
    mutant.put_back(monkeypatch)
    with pytest.raises((AssertionError, tm.TidemillError, pytest.fail.Exception)):
        mutant.check(tmp_path)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__[1:])
def test_without_the_fault_the_check_is_content(
    check: Callable[[Path], None], tmp_path: Path
) -> None:
    check(tmp_path)
