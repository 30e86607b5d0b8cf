"""The reference says of every error who must act."""

from __future__ import annotations

import re
from pathlib import Path

import tidemill as tm
from tidemill import errors

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"


def test_every_error_is_in_the_table() -> None:
    (section,) = re.findall(r"^## Errors\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    kinds = {
        name
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, tm.TidemillError)
    }
    assert kinds - {"TidemillError"} <= set(re.findall(r"`([A-Za-z]+)`", section))
    assert kinds <= set(dir(tm))
