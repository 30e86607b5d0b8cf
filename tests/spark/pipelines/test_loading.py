"""The pipelines in a file, and what may be wrong with it; no Spark runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark.cloudpickle import dumps, loads

import tidemill as tm
from tidemill.spark.pipelines.loading import chosen, load

TWO = """
from dataclasses import dataclass
from tidemill.spark import pipeline
from beside import FOLDER

@dataclass
class Named:
    n: "int"

@pipeline(source="in/", sink=FOLDER)
def copy(rows):
    return rows

@pipeline(source="in/", sink="there/", name="other")
def again(rows):
    return rows

same = copy

def double(n):
    return Named(2 * n).n
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "beside.py").write_text('FOLDER = "out/"')
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    return tmp_path / "flows.py"


def test_all_pipelines_of_a_file_are_found_in_their_order(file: Path) -> None:
    file.write_text(TWO)
    assert list(load(file)) == ["copy", "other"]
    assert list(chosen(file, ["other"])) == ["other"]
    with pytest.raises(tm.InvalidPipeline, match=r"no pipeline 'copied'; there are: copy, other"):
        chosen(file, ["copied"])


def test_what_a_file_prints_is_kept_apart_from_what_a_command_says(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(f"print('hello')\n{TWO}")
    assert len(load(file)) == 2
    assert capsys.readouterr() == ("", "hello\n")


def test_what_a_file_defines_travels_with_its_code(file: Path) -> None:
    file.write_text(TWO)
    double = load(file)["copy"].function.__globals__["double"]
    assert double.__module__ not in sys.modules
    assert loads(dumps(double))(4) == 8  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "flows.py defines no pipeline"),
        ("x = (", r"flows.py, line 1 cannot be run: SyntaxError"),
        ("\n1 / 0", r"flows.py, line 2 cannot be run: ZeroDivisionError: division by zero"),
        ("import nothing_of_the_kind", r"line 1 cannot be run: ModuleNotFoundError"),
        (
            "from pyspark.sql.functions import udf\nudf('long')(abs)",
            r"line 2 cannot be run.*The file is read before Spark starts: name types as objects",
        ),
        ("raise SystemExit(3)", r"line 1 cannot be run: SystemExit: 3"),
        (TWO.replace('name="other"', 'name="Copy"'), "two pipelines of the name Copy"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused(
    file: Path, text: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Other tests of the same process may have left a session behind.
    monkeypatch.setattr("pyspark.SparkContext._active_spark_context", None)
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED", raising=False)
    file.write_text(text)
    with pytest.raises(tm.InvalidPipeline, match=message):
        load(file)


def test_a_pipeline_that_is_refused_is_told_with_its_line(file: Path) -> None:
    file.write_text(TWO.replace('sink="there/"', 'sink="in/"'))
    with pytest.raises(tm.InvalidPipeline, match="is also its source") as raised:
        load(file)
    assert raised.value.__notes__ == [f"in {file}, line 14"]


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(tm.InvalidPipeline, match="there is no file"):
        load(tmp_path / "none.py")
