"""The judge accepts what is allowed, and names what is not."""

from __future__ import annotations

import pytest

from tests.faults.checker import PrefixModel, UniqueValues, Violation, number_and_key
from tests.faults.history import History

X, Y, Z = (1, b"x"), (1, b"y"), (2, b"z")


def test_values_are_unique_and_tell_where_they_came_from() -> None:
    values = UniqueValues()
    pairs = values.pairs([5, -5, 5])
    assert len({value for _, value in pairs}) == 3
    assert [number_and_key(value) for _, value in pairs] == [(0, 5), (1, -5), (2, 5)]
    for invented in (b"", b"nonsense", pairs[0][1][:-1] + b"x", b"#1:2"):
        with pytest.raises(Violation, match="invented"):
            number_and_key(invented)


def test_the_model_follows_the_semantics_of_the_queue() -> None:
    model = PrefixModel()
    model.push([Z, X])
    model.push([Y])
    model.fork("audit", "main")
    model.pop("main", 2)
    model.push([(0, b"0")])
    model.fork("audit", "main")
    model.delete("audit", 1, 1)
    model.pop_and_push("main", 1, [X])
    model.pop("audit", -1, key_max=1)
    model.clear("main")
    model.remove("audit")
    seen = [
        {fork: [(item.key, item.value) for item in items] for fork, items in state.items()}
        for state in map(model.state_after, range(model.attempted + 1))
    ]
    zero = (0, b"0")
    assert seen == [
        {"main": []},
        {"main": [X, Z]},
        {"main": [X, Y, Z]},
        {"main": [X, Y, Z], "audit": [X, Y, Z]},
        {"main": [Z], "audit": [X, Y, Z]},
        {"main": [zero, Z], "audit": [zero, X, Y, Z]},
        {"main": [zero, Z], "audit": [zero, X, Y, Z]},
        {"main": [zero, Z], "audit": [zero, Z]},
        {"main": [X, Z], "audit": [zero, X, Z]},
        {"main": [X, Z], "audit": [Z]},
        {"main": [], "audit": [Z]},
        {"main": []},
    ]


def test_the_model_accepts_every_prefix_from_acknowledged_to_attempted() -> None:
    model = PrefixModel()
    model.push([X])
    model.acknowledge()
    model.push([Y, Z])
    model.pop("main", 1)
    assert model.check({"main": [X]}) == 1
    assert model.check({"main": [X, Y, Z]}) == 2
    assert model.check({"main": [Y, Z]}) == 3
    model.retract()
    with pytest.raises(Violation, match=r"handed out|lost"):
        model.check({"main": [Y, Z]})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([X, Y], "lost: "),
        ([X, Y, Z, Z], "duplicated: "),
        ([Z, X, Y], "reordered: "),
        ([Y, X, Z], "part of an operation|reordered"),
        ([X, Y, Z, (9, b"9")], "invented: "),
        ([X, Y, Z, (7, b"7")], "part of an operation"),
        ([(0, b"0"), X, Y, Z], "handed out again: "),
    ],
)
def test_the_model_names_what_is_wrong(found: list[tuple[int, bytes]], words: str) -> None:
    model = PrefixModel()
    model.push([(0, b"0"), X])
    model.push([Y, Z])
    model.pop("main", 1)
    model.acknowledge()
    model.push([(7, b"7"), (8, b"8")])
    with pytest.raises(Violation, match=words):
        model.check({"main": found})


def test_the_model_misses_no_fork() -> None:
    model = PrefixModel()
    model.push([X])
    model.fork("audit", "main")
    model.acknowledge()
    model.pop("audit", 1)
    model.check({"main": [X], "audit": []})
    with pytest.raises(Violation, match="fork audit: lost"):
        model.check({"main": [X]})
    with pytest.raises(Violation, match="fork other: back from removal, or never made"):
        model.check({"main": [X], "audit": [], "other": []})
    # Each fork is allowed by itself, but no one moment has both.
    with pytest.raises(Violation, match="no k operations"):
        model.check({"main": [], "audit": []})


def _history() -> History:
    """Two pushes acknowledged, one not, and one pop that gave X."""
    history = History()
    history.push_acknowledged(history.push_attempted([X, Z]))
    history.push_acknowledged(history.push_attempted([Y]))
    history.pop_acknowledged(history.pop_attempted(1), [X])
    history.push_attempted([(7, b"7"), (8, b"8")])
    return history


@pytest.mark.parametrize("found", [[Y, Z], [Y, Z, (7, b"7"), (8, b"8")]])
def test_a_history_accepts_an_unacknowledged_push_whole_or_not_at_all(
    found: list[tuple[int, bytes]],
) -> None:
    _history().check({"main": found})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([Z], "lost: "),
        ([Y, Y, Z], "duplicated: "),
        ([Z, Y], "reordered: "),
        ([Y, Z, (9, b"9")], "invented: "),
        ([X, Y, Z], "handed out again: "),
        ([Y, Z, (7, b"7")], "part of a push: "),
    ],
)
def test_a_history_names_what_is_wrong(found: list[tuple[int, bytes]], words: str) -> None:
    with pytest.raises(Violation, match=words):
        _history().check({"main": found})


def test_a_pop_under_way_took_effect_whole_or_not_at_all() -> None:
    history = History()
    history.push_acknowledged(history.push_attempted([X, Z, (3, b"3"), (4, b"4")]))
    history.pop_attempted(2)
    history.check({"main": [X, Z, (3, b"3"), (4, b"4")]})
    history.check({"main": [(3, b"3"), (4, b"4")]})
    with pytest.raises(Violation, match="part of a pop"):
        history.check({"main": [Z, (3, b"3"), (4, b"4")]})
    with pytest.raises(Violation, match="lost: more than"):
        history.check({"main": [(4, b"4")]})
    with pytest.raises(Violation, match=r"lost: .* the smaller key 1 is left"):
        history.check({"main": [X, (4, b"4")]})


def test_a_history_sees_pops_that_were_wrong_by_themselves() -> None:
    history = History()
    history.push_acknowledged(history.push_attempted([X, Z]))
    history.pop_acknowledged(history.pop_attempted(1), [Z])
    with pytest.raises(Violation, match=r"reordered: .* popped before key 1"):
        history.check({"main": [X]})
    history.pop_acknowledged(history.pop_attempted(2), [Z, X])
    with pytest.raises(Violation, match="popped twice"):
        history.check({"main": []})


def test_an_unacknowledged_push_is_in_every_fork_or_in_none() -> None:
    history = History(forks=("main", "audit"))
    history.push_attempted([X])
    history.check({"main": [X], "audit": [X]})
    history.check({"main": [], "audit": []})
    with pytest.raises(Violation, match="in some forks only"):
        history.check({"main": [X], "audit": []})
