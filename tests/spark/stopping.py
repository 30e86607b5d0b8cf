"""Ends a job of Spark at a call of its driver, as a crash there would."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


class Crash(Exception):
    """The driver has ended here."""


def crash_at(patch: pytest.MonkeyPatch, owner: type, name: str, *, at: int, before: bool) -> None:
    """The driver ends right before or right after its call number `at`."""
    real = getattr(owner, name)
    calls = iter(range(10**6))

    def call(*args: Any, **options: Any) -> Any:
        is_last = next(calls) == at
        if is_last and before:
            raise Crash
        found = real(*args, **options)
        if is_last:
            raise Crash
        return found

    patch.setattr(owner, name, call)


def run_until_through(
    work: Callable[[], Any],
    owner: type,
    name: str,
    *,
    before: bool,
    settings: Callable[[pytest.MonkeyPatch], None] = lambda _: None,
) -> int:
    """Run a job again and again, each time ended one call later; returns how often it was ended."""
    for at in range(50):
        with pytest.MonkeyPatch.context() as patch:
            settings(patch)
            crash_at(patch, owner, name, at=at, before=before)
            try:
                work()
            except Crash:
                continue
        return at
    raise AssertionError("it never came through")
