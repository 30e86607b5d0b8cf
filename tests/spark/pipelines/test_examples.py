"""The examples run as their READMEs say, in a copy of their folders, on the session of the tests.

What they make is held against the same, made of their input by a few lines of Python.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from pyspark.sql import SparkSession

import tidemill as tm
from tests.gateway.shell import Shell
from tests.log.sql.relays import relay_after_a_kill
from tests.services.java import QUICK_JAVA
from tests.services.mariadb import MariaDB
from tests.services.server import free_port
from tests.spark.pipelines.numbers import rows_of
from tidemill.spark import Pipeline
from tidemill.spark.pipelines.loading import load
from tidemill.spark.pipelines.status import status

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
STATE_STORE = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder to copy an example into, where the test is, too."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in [name for name in sys.path if name == str(tmp_path)]:
        sys.path.remove(name)  # Where a pipeline was loaded from.


def copy(folder: Path, name: str) -> None:
    shutil.copytree(EXAMPLES / name, folder, dirs_exist_ok=True)


def python(*arguments: str) -> None:
    """Run a program of the example, as typed."""
    subprocess.run([sys.executable, *arguments], check=True, timeout=300)


def loaded(file: str) -> Pipeline:
    """The pipeline of a file, as it is written."""
    (found,) = load(Path(file)).values()
    return found


def items_of(queue: str) -> list[dict[str, Any]]:
    with tm.PriorityQueue(queue, read_only=True) as found:
        return found.peek(-1).to_arrow().to_pylist()


def test_clicks_per_minute(spark: SparkSession, example: Path) -> None:
    copy(example, "clicks_per_minute")
    python("produce.py", "6000")
    loaded("clicks.py").run(spark, once=True)
    clicks = rows_of(Path("clicks"))
    good = [one for one in clicks if one["user"] is not None and one["at_ms"] is not None]
    assert len(rows_of(Path("bad_clicks"))) == len(clicks) - len(good) == 120
    assert parquet.read_table("archive").num_rows == len(good)
    expected = Counter((one["at_ms"] // 60_000, one["page"]) for one in good)
    rows = items_of("counts")
    found = {(one["key"] // (60 * 10**9), one["page"]): one["clicks"] for one in rows}
    assert len(found) == len(rows)
    # The last minutes may still get clicks, and wait in the state.
    last = max(minute for minute, _ in found)
    assert found == {key: count for key, count in expected.items() if key[0] <= last}
    assert last >= max(minute for minute, _ in expected) - 4
    assert os.listdir("counts.state") == ["per_minute"]


def test_iot_late_data(spark: SparkSession, example: Path) -> None:
    """Every reading is counted in its minute, or late, or bad; over several batches."""
    copy(example, "iot_late_data")
    telemetry = loaded("telemetry.py")
    telemetry.sources["readings"].options["maxOffsetsPerTrigger"] = "4000"
    python("produce.py", "12000")
    telemetry.run(spark, once=True)
    readings = rows_of(Path("telemetry"))
    good = [one for one in readings if one["value"] is not None]
    late = [one for one in good if one["received_ms"] - one["measured_ms"] > 600_000]
    assert len(rows_of(Path("bad_readings"))) == len(readings) - len(good) == 120
    assert rows_of(Path("late")) == late
    assert {one["device"] for one in late} == {3}
    timely = [one for one in good if one not in late]
    expected = Counter((one["measured_ms"] // 60_000, one["device"]) for one in timely)
    rows = items_of("minutes")
    found = {(one["key"] // (60 * 10**9), one["device"]): one["readings"] for one in rows}
    newest_ms = max(one["measured_ms"] for one in timely)
    # A minute is over once the watermark has passed it.
    over = {key: n for key, n in expected.items() if (key[0] + 1) * 60_000 <= newest_ms - 600_000}
    assert found == over
    assert len(rows) == len(over) > 100


def sessions_of(visits: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Sessions that end by time alone: who, from when, seconds, pages."""
    found: Counter[tuple[Any, ...]] = Counter()
    by_user: dict[str, list[int]] = {}
    for one in visits:
        by_user.setdefault(one["user"], []).append(one["at_ms"])
    for user, times in by_user.items():
        idle_ms = (5 if user.startswith("guest-") else 30) * 60_000
        ordered = sorted(times)
        begins = [0, *(n for n in range(1, len(ordered)) if ordered[n] - ordered[n - 1] > idle_ms)]
        for begin, end in zip(begins, [*begins[1:], len(ordered)], strict=True):
            seconds = (ordered[end - 1] - ordered[begin]) / 1000
            found[user, ordered[begin], seconds, end - begin] += 1
    return found


def send_last_visit() -> None:
    """Long after all others: then their sessions are over."""
    schema = pa.schema([("user", pa.string()), ("page", pa.string()), ("at_ms", pa.int64())])
    with tm.Log("visits", schema=schema) as log, log.publisher() as out:
        out.send([{"user": "last", "page": "/", "at_ms": 1_770_000_000_000}])


def test_sessions(spark: SparkSession, example: Path) -> None:
    copy(example, "sessions")
    sessions = loaded("sessions.py")
    sessions.sources["visits"].options["maxOffsetsPerTrigger"] = "600"
    python("produce.py", "1000")
    sessions.run(spark, once=True)
    send_last_visit()
    sessions.run(spark, once=True)
    visits = rows_of(Path("visits"))[:-1]
    found = [
        (one["user"], one["key"] // 10**6, one["seconds"], one["pages"])
        for one in items_of("sessions")
    ]
    assert Counter(found) == sessions_of(visits)
    assert {user.partition("-")[0] for user, *_ in found} == {"guest", "member"}


def test_sessions_that_end_with_a_logout(spark: SparkSession, example: Path) -> None:
    """Spark takes half a minute of the processor for these few rows."""
    copy(example, "sessions")
    logouts, before = loaded("logouts.py"), spark.conf.get(STATE_STORE)
    try:
        python("produce.py", "1000")
        logouts.run(spark, once=True)
        send_last_visit()
        logouts.run(spark, once=True)
    finally:
        spark.conf.set(STATE_STORE, str(before))
    expected = []
    at: dict[str, list[int]] = {}  # times of the visits of open sessions
    for one in rows_of(Path("visits"))[:-1]:
        times = at.setdefault(one["user"], [])
        if times and one["at_ms"] - max(times) >= 30 * 60_000:
            expected.append((one["user"], min(times), len(times), "idle"))
            times.clear()
        times.append(one["at_ms"])
        if one["page"] == "/logout":
            expected.append((one["user"], min(times), len(times), "logout"))
            times.clear()
    expected += [(user, min(times), len(times), "idle") for user, times in at.items() if times]
    names = ("user", "start_ms", "pages", "reason")
    found = [tuple(one[name] for name in names) for one in rows_of(Path("logouts"))]
    assert sorted(found) == sorted(expected)


def test_mysql_outbox(
    spark: SparkSession,
    example: Path,
    mariadb: MariaDB,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Orders that were committed are Parquet rows, once each, though the relay is killed."""
    copy(example, "mysql_outbox")
    url = mariadb.url(database, "orders")
    monkeypatch.setenv("SHOP", url)
    python("shop.py", url, "200")
    orders = loaded("lakehouse.py")
    relay = [sys.executable, "-m", "tidemill", "outbox", "relay", url, url]
    subprocess.run([*relay, "--once"], check=True, capture_output=True, timeout=300)
    orders.run(spark, once=True)

    running = subprocess.Popen(relay, stdout=subprocess.DEVNULL)
    try:
        with tm.Log(url) as log:
            last = log.ends().next
            python("shop.py", url, "200")
            deadline_s = time.monotonic() + 120
            while log.ends().next == last:
                assert time.monotonic() < deadline_s
                time.sleep(0.01)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    with relay_after_a_kill(url, url) as rest:
        rest.run(follow=False)
    with tm.Log(url) as log, log.publisher() as out:
        out.send([b"not an order"])
    orders.run(spark, once=True)

    found = dataset.dataset("lakehouse/orders", partitioning="hive").to_table()
    placed = mariadb.execute(f"SELECT id, customer, cents FROM {database}.orders ORDER BY id")
    rows = found.sort_by("id").select(["id", "customer", "cents"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == placed
    assert 300 < len(placed) < 400  # Some were rolled back.
    assert sorted(found["seq"].to_pylist()) == list(range(1, len(placed) + 1))
    assert len(list(Path("lakehouse/orders").glob("day=2026-01-0*"))) == 3
    assert [one["reason"] for one in rows_of(Path("bad_orders"))] == ["no order"]


def test_standalone_cluster(example: Path) -> None:
    """As typed: a cluster of its own, a pipeline that goes on until it is stopped, its status."""
    copy(example, "standalone_cluster")
    shell = Shell(example)
    ports = {"MASTER_PORT": str(free_port()), "PAGE_PORT": str(free_port())}
    environment = {
        **shell.environment,
        **ports,
        "PYTHON": sys.executable,
        "JAVA_TOOL_OPTIONS": QUICK_JAVA,  # of all of them
    }

    def sh(command: str) -> str:
        done = subprocess.run(
            command, shell=True, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    url = f"spark://127.0.0.1:{ports['MASTER_PORT']}"
    try:
        assert sh("sh cluster.sh start").startswith(f"{url} runs")
        again = subprocess.run(["sh", "cluster.sh", "start"], capture_output=True, text=True)
        assert (again.returncode, "was started here" in again.stderr) == (1, True)
        python("produce.py", "3000")
        command = f"tidemill pipeline run access.py --every 2s --master {url}"
        assert command.replace(ports["MASTER_PORT"], "7077") in Path("README.md").read_text()
        running = subprocess.Popen(f"exec {command}", shell=True, env=environment)
        try:
            access, deadline_s = loaded("access.py"), time.monotonic() + 300
            while any(sink.lag for sink in status(access).sinks):
                assert running.poll() is None
                assert time.monotonic() < deadline_s
                time.sleep(0.2)
            assert f"process {running.pid}" in sh("tidemill pipeline status access.py")
        finally:
            running.terminate()
            ended = running.wait(300)
        assert ended == 128 + signal.SIGTERM
    finally:
        sh("sh cluster.sh stop")
    assert not list(Path("cluster").glob("*.pid"))
    lines: list[Any] = rows_of(Path("lines"))
    good = [line for line in lines if line.count(b'"') == 2]
    requests = parquet.read_table("requests")
    assert sorted(requests["seq"].to_pylist()) == [n for n in range(1, 3001) if n % 100]
    assert requests.num_rows == len(good) == 2970
    expected = Counter(line.split()[8] for line in good)
    found = Counter(str(code).encode() for code in requests["status"].to_pylist())
    assert found == expected
    assert [one["source_seq"] for one in rows_of(Path("no_lines"))] == list(range(100, 3001, 100))
