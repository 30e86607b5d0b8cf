"""Every example in a docstring of `tidemill.spark` runs, on the one session of the tests."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import tidemill.spark
from tests.docs.docstrings import failures_of

MODULES = [
    "tidemill.spark",
    *(one.name for one in pkgutil.walk_packages(tidemill.spark.__path__, "tidemill.spark.")),
]
# What these do to a session stays with it.
ALONE = ("tidemill.spark.session", "tidemill.spark.shipping")


@pytest.mark.slow
@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    if ">>> spark = session(" in inspect.getsource(module):
        if name in ALONE:
            request.getfixturevalue("no_spark")
        else:
            request.getfixturevalue("spark")
            # Each example ends its session, and the next would wait for another.
            monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    assert failures_of(module) == 0
