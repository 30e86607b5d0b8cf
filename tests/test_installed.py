"""Which copy of the package the tests run against."""

from __future__ import annotations

import os
import re
from importlib.metadata import metadata, version
from pathlib import Path

import pytest

import tidemill

SRC = Path(__file__).resolve().parents[1] / "src"


@pytest.mark.skipif(os.environ.get("TIDEMILL_WHEEL") != "1", reason="this run tests the source")
def test_the_tests_use_the_wheel_and_not_the_source() -> None:
    assert tidemill.__file__ is not None
    assert not Path(tidemill.__file__).resolve().is_relative_to(SRC)


def test_the_package_is_marked_as_typed() -> None:
    assert tidemill.__file__ is not None
    assert Path(tidemill.__file__).with_name("py.typed").exists()


def test_the_version_is_that_of_the_installed_distribution() -> None:
    assert tidemill.__version__ == version("tidemill")


def test_every_extra_that_a_message_names_is_there() -> None:
    """`pip install 'tidemill[...]'` is what an error tells people to type."""
    assert tidemill.__file__ is not None
    package = Path(tidemill.__file__).parent
    named = {
        extra
        for path in package.rglob("*.py")
        for extras in re.findall(r"tidemill\[([a-z0-9,]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    offered = set(metadata("tidemill").get_all("Provides-Extra") or ())
    assert named
    assert named <= offered
