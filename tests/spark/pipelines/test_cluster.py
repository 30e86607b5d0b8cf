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
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import psutil
import pytest

from tests.gateway.shell import Shell
from tests.services.spark_cluster import SPARK_CLASS, Cluster, on_cluster
from tests.spark.pipelines.flows import check_split, write_split
from tests.spark.pipelines.numbers import send
from tidemill.spark.java import find_java, java_home
from tidemill.spark.pipelines.offsets_log import last_begun

pytestmark = pytest.mark.slow

SINKS = ("log", "parquet", "dead_letters")
ROWS_PER_BATCH = 50
WAIT_S = 600
KILLS = 20  # of the long programme: a driver takes twenty seconds of the processor to start
START_S = 8.0  # about how long that is on a machine with nothing else to do


@dataclass
class Killed:
    """What was killed with SIGKILL, and how far it had come."""

    drivers: int = 0
    with_java: int = 0  # … of which so many together with their Java
    starting: int = 0  # … and so many before they had begun a batch
    executors: int = 0  # under a driver that lived on for a while


def start(shell: Shell, cluster: Cluster) -> subprocess.Popen[str]:
    settings = [
        part for name, value in on_cluster().items() for part in ("--conf", f"{name}={value}")
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


def submitted(shell: Shell, cluster: Cluster) -> dict[str, int | None]:
    """Run the file by itself, with spark-submit; gives how far behind each sink is."""
    done = subprocess.run(
        [
            *(str(SPARK_CLASS), "org.apache.spark.deploy.SparkSubmit", "--master", cluster.url),
            *(part for one in on_cluster().items() for part in ("--conf", "=".join(one))),
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
    found: dict[str, int | None] = ast.literal_eval(done.stdout)
    return found


def environment(shell: Shell) -> dict[str, str]:
    return {**shell.environment, "PYTHONPATH": os.pathsep.join(sys.path)}


def begun(folder: Path, sinks: Sequence[str] = SINKS) -> int:
    """How many batches of these sinks began."""
    checkpoints = [folder / "log.state" / "split" / sink for sink in sinks]
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


def wait_for_batches(process: subprocess.Popen[str], folder: Path, sink: str, count: int) -> None:
    """Wait until so many more batches of a sink have begun: the ones before are done then."""
    target = begun(folder, [sink]) + count
    deadline_s = time.monotonic() + WAIT_S
    while begun(folder, [sink]) < target:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def killed_and_resumed(cluster: Cluster, folder: Path, *, kills: int, seed: int) -> Killed:
    """Kill a pipeline so many times, let it end, and compare what it wrote."""
    shell, chance, killed = Shell(folder), random.Random(seed), Killed()
    turns = cycle(SINKS)
    write_split(folder)
    rows = 0
    while killed.drivers < kills:
        # A sink that is faster than the others has something to do in each run as well.
        send(folder / "in", range(rows, rows + 4 * ROWS_PER_BATCH))
        rows += 4 * ROWS_PER_BATCH
        before = begun(folder)
        process = start(shell, cluster)
        # Some die while they start, or take up what the one before left.
        if killed.drivers % 4 == 2:
            time.sleep(chance.random() * 1.5 * START_S)
        else:
            # One after the other: they are not equally fast, and all have to be in the middle once.
            wait_for_batches(process, folder, next(turns), chance.randint(1, 2))
            if killed.drivers % 4 == 3 and cluster.executors():
                cluster.kill_executor(chance.randrange(len(cluster.executors())))
                killed.executors += 1
            time.sleep(chance.random() * 0.5)
        if process.poll() is not None:
            # On a machine with nothing else to do it may be through by then: it does not count.
            assert process.returncode == 0, process.communicate()
            continue
        killed.starting += begun(folder) == before
        # Java that outlives its driver by moments is the harder case.
        with_java = chance.random() < 0.5
        kill(process, with_java=with_java)
        killed.drivers += 1
        killed.with_java += with_java
    # A sink that had nothing left to do does not tell.
    assert set(submitted(shell, cluster).values()) <= {0, None}
    check_split(folder, rows)
    return killed


def test_a_pipeline_killed_and_resumed_writes_each_row_once(
    free_cluster: Cluster, tmp_path: Path
) -> None:
    assert killed_and_resumed(free_cluster, tmp_path, kills=1, seed=7).drivers == 1


@pytest.mark.soak
def test_a_pipeline_killed_at_random_again_and_again_writes_each_row_once(
    free_cluster: Cluster, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(10**6)
    print(f"seed {seed}")  # noqa: T201 (a failure must replay from what it prints)
    begun_s = time.monotonic()
    killed = killed_and_resumed(free_cluster, tmp_path, kills=KILLS, seed=seed)
    print(f"{killed} in {time.monotonic() - begun_s:.0f} s")  # noqa: T201 (what it is run for)
    assert killed.drivers >= 20
