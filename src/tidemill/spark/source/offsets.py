"""Offsets as Spark stores them: `{"next": 42}`, the first row that is not part of what came before.

Spark compares them as text, so that there must be one text for each: one name, sorted for good.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidemill.errors import InvalidInput
from tidemill.spark.source.options import OFFSET


def offset(next_seq: int) -> dict[str, int]:
    """The offset in front of a row.

    >>> offset(42)
    {'next': 42}
    """
    return {OFFSET: int(next_seq)}


def next_seq(stored: Mapping[str, Any]) -> int:
    """The row that an offset stands in front of; anything that is no offset of ours is refused.

    >>> next_seq({"next": 42})
    42
    """
    number = stored.get(OFFSET) if isinstance(stored, Mapping) else None
    if type(number) is not int or set(stored) != {OFFSET}:
        raise InvalidInput(
            f"the checkpoint has the offset {json.dumps(stored, sort_keys=True, default=str)}, "
            "which no Tidemill source wrote: use a checkpoint for one query only"
        )
    return number
