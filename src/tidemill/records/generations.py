"""Generations for stores that have none of their own: numbers of 62 bits that are stored with each
record, drawn anew for each write.

A generation must not come twice. A record that was deleted and made again would be hit by a late
write to its former self; and where a server loses its last writes in a crash, what is written next
would be taken for what was lost. Numbers that were counted would come again, those that are drawn
do not: there are 2⁶².
"""

from __future__ import annotations

import secrets


def new_generation() -> int:
    """That of a record that is written.

    >>> 1 <= new_generation() <= 2**62
    True
    """
    return 1 + secrets.randbelow(2**62)
