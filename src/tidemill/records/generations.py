"""Generations for stores that have none of their own: numbers of 63 bits that are stored with each
record, one higher with each write.

A record that was deleted and made again must not have the generations of its former self, or a late
write to that one would hit this one. So the first is a random number: there are 2⁶², and a record
uses as many as it is written times.
"""

from __future__ import annotations

import secrets


def first_generation() -> int:
    """That of a record that is made."""
    return 1 + secrets.randbelow(2**62)


def next_generation(generation: int) -> int:
    """That of a record that is written over.

    >>> next_generation(7)
    8
    """
    return generation + 1
