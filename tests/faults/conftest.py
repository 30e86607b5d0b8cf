"""What tests of faults share."""

from __future__ import annotations

import pytest

from tidemill.files.upkeep import segment_facts, survivors


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handful of frames is many, and is rewritten as frames of a few items."""
    monkeypatch.setattr(survivors, "CARRY_ROWS_MAX", 3)
    monkeypatch.setattr(segment_facts, "TINY_FRAMES_MIN", 4)
