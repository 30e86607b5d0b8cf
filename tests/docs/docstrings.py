"""Examples in docstrings."""

from __future__ import annotations

import doctest
from types import ModuleType


def failures_of(module: ModuleType) -> int:
    """Run the examples of a module; how many do not give what they say."""
    options = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    return doctest.testmod(module, optionflags=options).failed
