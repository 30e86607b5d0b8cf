"""Where rows lie that are read and merged.

Arrow's own choice of an allocator asks the system for pages of 2 MiB each, which costs memory where
they are filled in part, and time where the system has none at hand. Rows of a merge come and go by
the megabyte, so that they lie with the allocator that uses small pages and keeps them for a while.
"""

from __future__ import annotations

from functools import cache

import pyarrow as pa


@cache
def row_memory() -> pa.MemoryPool:
    """The pool for them; Arrow's own where it was built without the other."""
    try:
        return pa.jemalloc_memory_pool()
    except NotImplementedError:
        return pa.default_memory_pool()
