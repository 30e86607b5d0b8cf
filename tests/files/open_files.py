"""Which files are open."""

from __future__ import annotations

import os
from pathlib import Path


def open_below(folder: Path) -> int:
    """How many descriptors of this process are of files in `folder`, with or without a name there.

    Of all that it has, the number says nothing: what other tests left in cycles of garbage is
    closed whenever Python comes to look for it.
    """
    count = 0
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{descriptor}")
        except OSError:
            continue  # Closed since, as that of the listing itself.
        # A file whose name is gone has the word "(deleted)" behind it.
        count += Path(target).is_relative_to(folder)
    return count
