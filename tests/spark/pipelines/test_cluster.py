"""A pipeline on a real cluster, whose driver is killed at random, again and again.

It is started by the command, and in the end by spark-submit: the same file, and the same state.
"""

from __future__ import annotations

import ast
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.gateway.shell import Shell
from tests.services.spark_cluster import ON_CLUSTER, SPARK_CLASS, Cluster
from tests.spark.pipelines.flows import check_split, write_split
from tests.spark.pipelines.numbers import send
from tidemill.spark.java import find_java, java_home
from tidemill.spark.pipelines.offsets_log import last_begun

pytestmark = pytest.mark.slow

SINKS = ("log", "parquet", "dead_letters")
ROWS_PER_BATCH = 50
WAIT_S = 600
SOAK = os.environ.get("TIDEMILL_SOAK") == "1"
KILLS = 20 if SOAK else 1  # A driver takes twenty seconds of the processor to start.


def start(shell: Shell, cluster: Cluster) -> subprocess.Popen[str]:
    settings = [
        part for name, value in ON_CLUSTER.items() for part in ("--conf", f"{name}={value}")
    ]
    command = ["-m", "tidemill", "pipeline", "run", "flows.py", "--once", "--json", *settings]
    return subprocess.Popen(
        [sys.executable, *command, "--master", cluster.url],
        cwd=shell.folder,
        env=environment(shell),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def submitted(shell: Shell, cluster: Cluster) -> dict[str, int]:
    """Run the file by itself, with spark-submit; gives how far behind each sink is."""
    done = subprocess.run(
        [
            *(str(SPARK_CLASS), "org.apache.spark.deploy.SparkSubmit", "--master", cluster.url),
            *(part for one in ON_CLUSTER.items() for part in ("--conf", "=".join(one))),
            "flows.py",
        ],
        cwd=shell.folder,
        env={
            **environment(shell),
            "JAVA_HOME": str(java_home(find_java())),
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, int] = ast.literal_eval(done.stdout)
    return found


def environment(shell: Shell) -> dict[str, str]:
    return {**shell.environment, "PYTHONPATH": os.pathsep.join(sys.path)}


def begun(folder: Path) -> int:
    """How many batches began, of all sinks."""
    checkpoints = [folder / "log.state" / "split" / sink for sink in SINKS]
    return sum(1 + last for path in checkpoints if (last := last_begun(path)) is not None)


def kill(process: subprocess.Popen[str], *, with_java: bool) -> None:
    """SIGKILL for the driver; its Java ends by itself when it notices, or is killed as well."""
    children: Sequence[psutil.Process] = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    for child in children if with_java else ():
        try:
            child.kill()
        except psutil.NoSuchProcess:
            continue
    process.communicate(timeout=WAIT_S)


def killed_and_resumed(cluster: Cluster, folder: Path, *, kills: int, seed: int) -> None:
    shell, chance = Shell(folder), random.Random(seed)
    write_split(folder)
    rows = ROWS_PER_BATCH * (2 * kills + 2)
    send(folder / "in", range(rows))
    for number in range(kills):
        process = start(shell, cluster)
        target = begun(folder) + chance.randint(1, 4)
        deadline_s = time.monotonic() + WAIT_S
        while begun(folder) < target:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        time.sleep(chance.random() * 0.5)
        assert process.poll() is None, f"run {number} ended before it was killed"
        # Java that outlives its driver by moments is the harder case.
        kill(process, with_java=number % 2 == 1)
    assert submitted(shell, cluster) == dict.fromkeys(SINKS, 0)
    check_split(folder, rows)


def test_a_pipeline_killed_at_random_writes_each_row_once(
    free_cluster: Cluster, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6) if SOAK else 7
    record = tmp_path / "seed"  # It is kept if the test fails.
    record.write_text(str(seed))
    killed_and_resumed(free_cluster, tmp_path, kills=KILLS, seed=seed)
