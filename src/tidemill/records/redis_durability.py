"""What the settings of Redis promise about a write that it has confirmed."""

from __future__ import annotations

from collections.abc import Mapping

SETTING_NAMES = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy")


def problems_of(values: Mapping[str, str]) -> tuple[str, ...]:
    """What is wrong with the values, each with what follows and what to do.

    >>> problems_of({"appendonly": "yes", "appendfsync": "always", "maxmemory": "0"})
    ()
    >>> problems_of({"appendonly": "yes", "appendfsync": "everysec"})[0][:50]
    'appendfsync = everysec: a crash of the machine los'
    """
    problems = []
    if values.get("appendonly", "no") != "yes":
        problems.append(
            "appendonly = no: a restart of Redis loses what was confirmed since its last snapshot; "
            "set it to yes, and appendfsync to always"
        )
    elif (sync := values.get("appendfsync", "everysec")) != "always":
        lost = "in the last second" if sync == "everysec" else "since the system last wrote"
        problems.append(
            f"appendfsync = {sync}: a crash of the machine loses what was confirmed {lost}; "
            "set it to always"
        )
    policy = values.get("maxmemory-policy", "noeviction")
    if values.get("maxmemory", "0") != "0" and policy.startswith("allkeys"):
        problems.append(
            f"maxmemory-policy = {policy}: Redis drops records when its memory is full; "
            "set it to noeviction"
        )
    return tuple(problems)
