"""Values as callers gave them, in words for an error message."""

from __future__ import annotations

_CHARACTERS_MAX = 200


def shown(value: object) -> str:
    """What `repr` says, cut to a length that can be read; it never raises.

    >>> shown("a"), shown(10**5000), len(shown("a" * 1_000))
    ("'a'", 'a value of type int that cannot be shown', 200)
    """
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 (a number of too many digits, or a caller's own `__repr__`)
        return f"a value of type {type(value).__name__} that cannot be shown"
    return text if len(text) <= _CHARACTERS_MAX else f"{text[: _CHARACTERS_MAX - 3]}..."
