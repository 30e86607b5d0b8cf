"""Puts a fault into a function by changing its source: a change that no longer fits it is an error
at once, and not a fault that every check finds.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

import tidemill as tm


def mutated(function: Callable[..., Any], old: str, new: str) -> Callable[..., Any]:
    """The function with a part of its source replaced, which is there once."""
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(old) != 1:
        raise LookupError(f"{function.__qualname__} has {old!r} {source.count(old)} times")
    found: dict[str, Any] = {}
    code = "from __future__ import annotations\n" + source.replace(old, new)
    exec(compile(code, inspect.getfile(function), "exec"), function.__globals__, found)
    made: Callable[..., Any] = found[function.__name__]
    return made


def drop_failed_pushes(patch: pytest.MonkeyPatch) -> None:
    """Has pushes say that they are done whether they are or not."""
    whole = tm.PriorityQueue.push

    def push(self: tm.PriorityQueue, data: object, *, key: str | None = None) -> tm.Receipt:
        try:
            return whole(self, data, key=key)
        except tm.TidemillError:
            return tm.Receipt(1, 1, 1, "synced")

    patch.setattr(tm.PriorityQueue, "push", push)
