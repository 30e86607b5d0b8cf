"""Holds the state that opens a segment against the one that the segment before leads to. Pure."""

from __future__ import annotations

from tidemill.files.state.state import ForkState, State


def differences(replayed: State, stated: State) -> list[str]:
    """What a state says that does not follow from the records before it, in words.

    Cuts, audiences and ancestors that no frame needs any more are forgotten in between, so that
    fewer are stated; the time also moves with operations that bear none.
    """
    found = [
        f"{name} is {getattr(stated, name)}, but should be {getattr(replayed, name)}"
        for name in ("next_seq", "next_fork", "next_audience", "dropped")
        if getattr(stated, name) != getattr(replayed, name)
    ]
    if stated.time_us < replayed.time_us:
        found.append(f"the time is {stated.time_us}, but was {replayed.time_us} already")
    if not stated.audiences.items() <= replayed.audiences.items():
        found.append("there are audiences that no record says")
    if stated.quarantined != replayed.quarantined:
        found.append("the records set aside are not those that the journal says")
    if stated.log.to_json() != replayed.log.to_json():
        found.append("the marks, the notes or the first row are not those that the records say")
    for id in sorted(stated.forks.keys() | replayed.forks.keys()):
        found += _fork_differences(replayed.forks.get(id), stated.forks.get(id))
    return found


def _fork_differences(replayed: ForkState | None, stated: ForkState | None) -> list[str]:
    if replayed is None or stated is None:
        fork = replayed or stated
        name = "" if fork is None else fork.name
        return [f"fork {name!r} is {'missing' if stated is None else 'there, but was never made'}"]
    found = []
    ancestors = replayed.ancestors[: len(stated.ancestors)]
    if (stated.name, stated.created, stated.ancestors) != (
        replayed.name,
        replayed.created,
        ancestors,
    ):
        found.append(f"fork {stated.name!r} comes from elsewhere than its record says")
    if stated.live != replayed.live:
        found.append(
            f"fork {stated.name!r} has {stated.live} items left, but should have {replayed.live}"
        )
    if not set(stated.cuts.all()) <= set(replayed.cuts.all()):
        found.append(f"fork {stated.name!r} has cuts that no record says")
    return found
