"""Which copy of the package the tests run against."""

from __future__ import annotations

import os
from importlib.metadata import version
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
