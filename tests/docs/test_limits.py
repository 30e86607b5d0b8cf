"""The page of limits names every bound there is, with the value that it has."""

from __future__ import annotations

import re
from pathlib import Path

from tidemill import limits

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "limits.md"
ROW = re.compile(r"^\| .* \| (.*) \| `([A-Z0-9_]+)` \|$", re.MULTILINE)

UNITS = {"KIB", "MIB", "INT64_MIN", "INT64_MAX"}


def written(name: str, value: int) -> str:
    """A bound as the page writes it."""
    if "BYTES" in name and value % limits.MIB == 0:
        return f"{value // limits.MIB:,} MiB"
    if "BYTES" in name and value % limits.KIB == 0:
        return f"{value // limits.KIB:,} KiB"
    return f"{value:,}"


def test_every_bound_is_on_the_page_with_its_value() -> None:
    bounds = {name: value for name, value in vars(limits).items() if name.isupper()}
    expected = {name: written(name, bounds[name]) for name in bounds.keys() - UNITS}
    assert {name: value for value, name in ROW.findall(PAGE.read_text())} == expected
