"""The doctor of a log on a server tells what is wrong, and where."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.gateway.shell import Shell
from tests.log.contract.writing import append
from tests.services.mariadb import MariaDB
from tidemill.files.report import Severity
from tidemill.files.staging.transaction import Transaction
from tidemill.log.sql.checkup import verify
from tidemill.log.sql.staging import ServerStaging
from tidemill.log.sql.store import ServerLog


@pytest.fixture
def full(open_log: Callable[..., ServerLog]) -> ServerLog:
    store = open_log(parallelism=2)
    writer = store.claim()
    for number in range(6):
        append(writer, [b"%d" % number, b"%d'" % number], lane=number % 2)
    return store


def test_a_healthy_log_is_well(full: ServerLog, url: str) -> None:
    report = verify(url)
    assert (report.rows, report.frames, report.worst) == (12, 6, None)
    assert "All is well." in str(report)


def test_holes_and_damage_are_told_of_one_by_one(
    full: ServerLog, url: str, mariadb: MariaDB, database: str
) -> None:
    table = f"{database}.queue_log_002_0000"
    mariadb.execute(f"DELETE FROM {table} WHERE first = 5")
    mariadb.execute(f"UPDATE {table} SET frame = INSERT(frame, 200, 1, 'x') WHERE first = 1")
    report = verify(url)
    assert [finding.code for finding in report.findings] == ["frame", "missing-rows"]
    damaged, missing = report.findings
    assert "queue_log_002_0000" in damaged.what
    assert "first = 1" in damaged.what
    assert "rows 5 to 6" in missing.what
    assert report.worst is Severity.DAMAGE
    assert report.rows == 8


def test_what_is_staged_and_not_committed_is_told_of(
    full: ServerLog, url: str, mariadb: MariaDB, database: str
) -> None:
    attempt = ServerStaging(url, "load").attempt(0)
    attempt.write(pa.record_batch({"value": pa.array([b"staged"], pa.binary())}))
    part = attempt.finish()
    (finding,) = verify(url).findings
    assert (finding.code, finding.severity) == ("staging", Severity.NOTE)
    assert "1 frame" in finding.what
    assert "days" not in finding.what
    mariadb.execute(f"UPDATE {database}.queue_log_staging SET made = 1")
    report = verify(url)
    assert "1 of them for more than 7 days" in report.findings[0].what
    assert "All is well." in str(report)
    ServerStaging(url, "load").commit(Transaction("load", 0), [part])
    assert not verify(url).findings


def test_settings_that_void_durability_are_warnings(
    full: ServerLog, url: str, mariadb: MariaDB
) -> None:
    mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
    try:
        report = verify(url)
    finally:
        mariadb.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 1")
    (finding,) = report.findings
    assert finding.severity is Severity.WARNING
    assert "innodb_flush_log_at_trx_commit = 2" in finding.what
    assert finding.advice == "set it to 1"


def test_consumers_off_the_log_are_told_of(
    full: ServerLog, url: str, mariadb: MariaDB, database: str
) -> None:
    full.claim_consumer("slow", start=1)
    full.claim_consumer("mad", start=1)
    full.trim(7, force=True)
    mariadb.execute(f"UPDATE {database}.queue_log_pointers SET pointer = 99 WHERE name = 'mad'")
    severities = {finding.path.name: finding.severity for finding in verify(url).findings}
    assert severities == {"slow": Severity.WARNING, "mad": Severity.DAMAGE}


@pytest.mark.slow
def test_the_command_ends_with_the_status_of_what_it_found(
    full: ServerLog, url: str, mariadb: MariaDB, database: str, shell: Shell
) -> None:
    assert shell.good(f"tidemill --json doctor {url}").json()["rows"] == 12
    mariadb.execute(f"DELETE FROM {database}.queue_log_002_0001 WHERE first = 3")
    shell.refused(f"tidemill doctor {url}", 9, "corrupt")
