"""The one grammar of names: queues, forks, consumers, rings, and bucket functions.

A name that passes can be a file name, a table name and a part of a URL without quoting, on any file
system: letters, digits, ``-``, ``_``, ``.``; it starts with a letter or digit and does not end in a
dot. Names are compared exactly but must be unique ignoring case, because some file systems cannot
tell ``Audit`` from ``audit``.

Counters have names of their own kind, which are no files: longer, with ``:``, ``/`` and ``@``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tidemill.errors import InvalidName
from tidemill.limits import COUNTER_NAME_LENGTH_MAX, NAME_LENGTH_MAX
from tidemill.shown import shown

_GRAMMAR = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?", re.ASCII)

COUNTER_NAME_PATTERN = rf"[A-Za-z0-9_.:/@-]{{1,{COUNTER_NAME_LENGTH_MAX}}}"
_COUNTER_GRAMMAR = re.compile(COUNTER_NAME_PATTERN, re.ASCII)


def check_name(name: object, *, what: str) -> str:
    """Return `name` if it is legal, else raise `InvalidName` that says what is wrong with it.

    >>> check_name("audit-2", what="fork")
    'audit-2'
    >>> check_name("../etc", what="fork")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidemill.errors.InvalidName: fork name '../etc' is not allowed: use letters, digits, ...
    """
    if not isinstance(name, str):
        raise InvalidName(f"{what} name must be a string, not {type(name).__name__}")
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise InvalidName(
            f"{what} name must have 1 to {NAME_LENGTH_MAX} characters, this one has {len(name)}"
        )
    if _GRAMMAR.fullmatch(name) is None:
        raise InvalidName(
            f"{what} name {shown(name)} is not allowed: use letters, digits, '-', '_' and '.', "
            "start with a letter or digit, do not end with a dot"
        )
    return name


def check_counter_name(name: object) -> str:
    """Return `name` if a counter may have it, else raise `InvalidName`.

    >>> check_counter_name("requests:/login@eu-west")
    'requests:/login@eu-west'
    """
    if not isinstance(name, str):
        raise InvalidName(f"a counter's name must be a string, not {type(name).__name__}")
    if _COUNTER_GRAMMAR.fullmatch(name) is None:
        raise InvalidName(
            f"a counter's name has 1 to {COUNTER_NAME_LENGTH_MAX} letters, digits, "
            f"'-', '_', '.', ':', '/' and '@'; {shown(name[:80])} is none"
        )
    return name


def check_unique(name: str, others: Iterable[str], *, what: str) -> None:
    """Raise `InvalidName` if one of `others` differs from `name` by case alone."""
    folded = name.lower()
    for other in others:
        if other != name and other.lower() == folded:
            raise InvalidName(
                f"{what} name {shown(name)} differs from the existing {other!r} by case alone; "
                "choose another"
            )
