"""What messages show: values as callers gave them, words of others, and counts."""

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


def printable(words: str) -> str:
    """What a server or a peer says, so that it stays on its line of a log and on its place on a
    terminal.

    >>> printable("no room\\n\\x1b[2J")
    'no room\\\\n\\\\x1b[2J'
    """
    if words.isprintable():
        return words
    escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in words)
    return "".join(escaped)


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """A number with its noun.

    >>> counted(1, "item"), counted(2000, "item"), counted(0, "entry", "entries")
    ('1 item', '2,000 items', '0 entries')
    """
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"
