"""Real servers of Spark: a standalone cluster, whose master and workers are processes of their own,
and one of Spark Connect.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyspark

from tests.services.java import quick_java
from tests.services.server import Server, free_port
from tidemill.spark.java import find_java, java_home

# Python runs in folders of its own, where a relative path leads nowhere.
PYTHON_PATH = os.pathsep.join(
    os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
)
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"


def on_cluster() -> dict[str, str]:
    """What a session on the cluster is told: it has two executors with a core each."""
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": quick_java(),
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
    }


def on_half_of_it() -> dict[str, str]:
    """One of the two executors is left to another driver."""
    return {**on_cluster(), "spark.cores.max": "1"}


class _SparkServer(Server):
    """A server of Spark's own; its page tells that it is up."""

    programs = ("bash",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.page_port = free_port()
        self.environment: Mapping[str, str] = {
            "JAVA_HOME": str(java_home(find_java())),
            "SPARK_HOME": str(SPARK_CLASS.parents[1]),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": quick_java(),
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
            "SPARK_SUBMIT_OPTS": quick_java(),
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": PYTHON_PATH,
        }

    def answers(self) -> bool:
        return bool(self.page())

    def page(self) -> dict[str, Any]:
        """What it tells of itself; nothing while it is not up."""
        address = f"http://127.0.0.1:{self.page_port}/json/"
        try:
            with urllib.request.urlopen(address, timeout=5) as page:
                return dict(json.load(page))
        except (OSError, ValueError):
            return {}  # It does not listen yet, or has nothing to tell.


class Master(_SparkServer):
    """Knows the workers, and gives their cores to applications."""

    def command(self) -> list[str]:
        return [
            *(str(SPARK_CLASS), "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1"),
            *("--port", str(self.port), "--webui-port", str(self.page_port)),
        ]

    @property
    def url(self) -> str:
        return f"spark://127.0.0.1:{self.port}"


class Worker(_SparkServer):
    """Starts executors, as processes of their own."""

    def __init__(self, folder: Path, master: Master, host: str) -> None:
        super().__init__(folder)
        self.master = master
        self.host = host

    def command(self) -> list[str]:
        return [
            *(str(SPARK_CLASS), "org.apache.spark.deploy.worker.Worker", "--host", self.host),
            *("--port", str(self.port), "--webui-port", str(self.page_port)),
            *("--cores", "1", "--memory", "1g", "--work-dir", str(self.folder / "work")),
            self.master.url,
        ]

    def answers(self) -> bool:
        return any(known["port"] == self.port for known in self.master.page().get("workers", ()))


class ConnectServer(_SparkServer):
    """Runs what thin clients ask for, on two cores of its own.

    Its own Python has Tidemill, so that Spark finds the source there. A source that a client brings
    runs on another Python, which has not.
    """

    def __init__(self, folder: Path, bare_python: Path) -> None:
        super().__init__(folder)
        self.environment = {
            **self.environment,
            "PYSPARK_PYTHON": str(bare_python),
            "PYSPARK_DRIVER_PYTHON": sys.executable,
        }

    def command(self) -> list[str]:
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
            "spark.ui.enabled": "false",
        }
        return [
            *(str(SPARK_CLASS), "org.apache.spark.deploy.SparkSubmit", "--master", "local[2]"),
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer"),
            *(part for name, value in settings.items() for part in ("--conf", f"{name}={value}")),
            "spark-internal",
        ]

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self.port}"


class Cluster:
    """A master and two workers with a core each."""

    def __init__(self, master: Master, workers: list[Worker]) -> None:
        self.master = master
        self.workers = workers

    @property
    def url(self) -> str:
        return self.master.url

    def executors(self) -> list[psutil.Process]:
        """The processes that run tasks now, of whatever application."""
        return [
            child
            for worker in self.workers
            for child in psutil.Process(worker.pid).children()
            if "CoarseGrainedExecutorBackend" in " ".join(_command_line(child))
        ]

    def kill_executor(self, position: int = 0) -> None:
        """SIGKILL for one executor; the worker starts another."""
        executor = self.executors()[position]
        executor.send_signal(signal.SIGKILL)
        executor.wait(30)


def _command_line(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []  # It has ended meanwhile.


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    with ExitStack() as stack:

        def start(server: _SparkServer) -> None:
            server.folder.mkdir()
            stack.enter_context(server)

        master = Master(folder / "master")
        start(master)
        # Two names for one machine: a second attempt of a task goes to another host, or nowhere.
        workers = [Worker(folder / host, master, host) for host in ("127.0.0.1", "localhost")]
        for worker in workers:
            start(worker)
        yield Cluster(master, workers)
