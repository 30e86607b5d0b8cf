"""How much to measure, and where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ITEMS_PER_BATCH = 2_000
VALUE_BYTES = 40
KEY_BYTES = 8
ROUNDS_MIN = 5  # of a run whose figures are meant to be believed


@dataclass(frozen=True, slots=True)
class Settings:
    """What the command line chose."""

    folder: Path  # where queues and peers keep their files; every workload cleans up behind itself
    rounds: int
    quick: bool  # a tenth or less of everything: shows that it works, proves nothing

    def batches(self, sync: str) -> int:
        """Operations that one contestant times in one round."""
        if self.quick:
            return 20 if sync == "none" else 5
        return 400 if sync == "none" else 100

    @property
    def scales(self) -> list[int]:
        """How many items are queued when the cost of one more operation is measured."""
        return [10**5, 10**6] if self.quick else [10**5, 10**6, 10**7, 10**8]
