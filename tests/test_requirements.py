"""The bounds in pyproject.toml are those that the tests run with."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def test_the_oldest_versions_that_are_admitted_are_those_of_make_oldest() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    # `connect` is `spark` in a smaller package.
    extras = [one for name, needed in extras.items() if name != "connect" for one in needed]
    bounds = {re.split(r"[<>=\[]", one)[0]: one for one in [*project["dependencies"], *extras]}
    locked = (ROOT / "requirements" / "oldest.txt").read_text()
    for name, bound in bounds.items():
        (least,) = re.findall(r">=([0-9.]+)", bound)
        (oldest,) = re.findall(rf"^{name.lower()}==([0-9.]+)", locked, re.MULTILINE)
        assert re.fullmatch(rf"{re.escape(least)}(\.0)*", oldest), (bound, oldest)


def test_an_extra_and_its_thin_twin_need_the_same_of_what_both_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    thick = {one.replace("pyspark", "pyspark-client") for one in extras["spark"]}
    assert set(extras["connect"]) <= thick
