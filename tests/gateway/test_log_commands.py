"""The commands on a log, through a real shell."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tests.services.mariadb import MariaDB

# Every command starts a Python of its own, several times over.
pytestmark = pytest.mark.slow


@pytest.fixture
def orders(shell: Shell) -> Shell:
    """A shell beside a log with the rows 1 to 10."""
    with tm.Log(shell.folder / "orders") as log, log.publisher() as out:
        out.send([b"row %d" % number for number in range(1, 11)])
    return shell


def test_rows_go_in_and_come_out(shell: Shell) -> None:
    sent = shell.good("printf 'a\\nb\\n' | tidemill send orders/ - --format lines --json").json()
    assert sent == {
        "log": "orders/",
        "sent": 2,
        "first": 1,
        "last": 2,
        "durability": "synced",
        "left_out": 0,
    }
    rows = shell.good("tidemill receive orders/ billing --json").lines()
    assert [(row["seq"], row["value"]) for row in rows] == [(1, "a"), (2, "b")]
    assert shell.good("tidemill receive orders/ billing").out == ""
    assert shell.good("TIDEMILL_LOG=orders/ tidemill receive audit --format lines").out == "a\nb\n"


def test_a_new_log_takes_its_columns_from_the_first_rows(shell: Shell) -> None:
    shell.good("""echo '{"n": 1, "city": "Ghent"}' | tidemill send orders/ -""")
    with tm.Log(shell.folder / "orders") as log:
        assert log.schema.names == ["n", "city"]
    shell.good("tidemill send more/ --from - --schema 'n: int64' < /dev/null")
    error = shell.refused("""echo '{"n": "x"}' | tidemill send orders/ -""", 3, "invalid-input")
    assert "n" in error["message"]


def test_bad_input_makes_no_log(shell: Shell) -> None:
    error = shell.refused("echo 'no json' | tidemill send orders/ -", 3, "invalid-input")
    assert "--skip-rows" not in error["message"]
    assert not (shell.folder / "orders").exists()


@pytest.mark.parametrize("command", ["len", "push", "doctor --repair"])
def test_a_url_in_place_of_a_folder_makes_none_and_shows_no_password(
    shell: Shell, command: str
) -> None:
    name, *options = command.split()
    url = "MYSQL://app:hush@127.0.0.1:1/shop/orders"
    arguments = " ".join([name, url, *options])
    error = shell.refused(f"echo '{{}}' | tidemill {arguments}", 3, "invalid-input")
    assert "hush" not in error["message"]
    assert [path.name for path in shell.folder.iterdir()] == ["bin"]


def test_what_comes_of_a_command_on_a_server_shows_no_password(
    shell: Shell, mariadb: MariaDB, database: str
) -> None:
    mariadb.execute(f"CREATE USER {database}@'127.0.0.1' IDENTIFIED BY 'hush'")
    mariadb.execute(f"GRANT ALL ON {database}.* TO {database}@'127.0.0.1'")
    shown = mariadb.url(database, "orders").replace("root@", f"{database}@")
    url = shown.replace("@", ":hush@")
    sent = shell.good(f"seq 3 | tidemill send {url} - --format lines --json").json()
    assert (sent["sent"], sent["log"]) == (3, shown)
    assert shell.good(f"tidemill stats {url} --json").json()["log"] == shown


def test_sync_is_an_option_of_folders(shell: Shell) -> None:
    url = "mysql://app@127.0.0.1:1/shop/orders"
    send = f"echo '{{\"n\": 1}}' | tidemill send {url} - --sync none"
    assert "no option 'sync'" in shell.refused(send, 3, "invalid-input")["message"]


def test_with_a_producer_nothing_is_sent_twice(shell: Shell) -> None:
    (shell.folder / "rows").write_text("".join(f"{number}\n" for number in range(1_000)))
    send = (
        "tidemill send orders/ --from rows --format lines --producer rows --batch-rows 100 --json"
    )
    assert shell.good(send).json()["sent"] == 1_000
    again = shell.good(send).json()
    assert (again["sent"], again["left_out"]) == (0, 1_000)
    with open(shell.folder / "rows", "a") as file:
        file.write("more\n")
    more = shell.good(send).json()
    assert (more["sent"], more["left_out"]) == (1, 1_000)
    with tm.Log(shell.folder / "orders") as log:
        assert log.ends().next == 1_002


def test_the_journal_of_a_log_can_be_read(shell: Shell) -> None:
    shell.good("seq 3 | tidemill send orders/ - --format lines --producer p")
    listed = shell.good("tidemill journal orders/").out
    (mark,) = [line for line in listed.splitlines() if " mark " in line]
    assert '"p"' in mark
    records = shell.good("tidemill journal orders/ --json").lines()
    assert len(records) == len(listed.splitlines()) - 1


def test_receive_takes_as_many_as_asked_and_acks_them(orders: Shell) -> None:
    assert len(orders.good("tidemill receive orders/ one --rows 3 --json").lines()) == 3
    assert len(orders.good("tidemill receive orders/ one --rows 3 --keep --json").lines()) == 3
    done = orders.good("tidemill receive orders/ one --to out.parquet --json").json()
    assert done == {"received": 7, "first": 4, "last": 10, "to": "out.parquet"}
    table = pq.read_table(orders.folder / "out.parquet")
    assert table.column("seq").to_pylist() == list(range(4, 11))
    assert orders.good("tidemill receive orders/ one --json").lines() == []


@pytest.mark.parametrize(
    ("start", "count"),
    [("earliest", 10), ("latest", 0), ("8", 3), ("2000-01-01T00:00:00Z", 10), ("2999-01-01Z", 0)],
)
def test_a_new_consumer_starts_where_it_is_told(orders: Shell, start: str, count: int) -> None:
    if start == "2999-01-01Z":
        start = "2999-01-01T00:00:00+02:00"
    rows = orders.good(f"tidemill receive orders/ one --start {start} --json").lines()
    assert len(rows) == count


def test_following_goes_on_until_it_is_stopped(orders: Shell) -> None:
    follow = subprocess.Popen(
        ["tidemill", "receive", "orders/", "one", "--follow", "--format", "lines"],
        cwd=orders.folder,
        env=orders.environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert follow.stdout is not None
    assert [follow.stdout.readline() for _ in range(10)] == [f"row {n}\n" for n in range(1, 11)]
    orders.good("echo later | tidemill send orders/ - --format lines")
    assert follow.stdout.readline() == "later\n"
    follow.send_signal(signal.SIGINT)
    assert follow.wait(60) == 130
    follow.stdout.close()
    with tm.Log(orders.folder / "orders") as log:
        assert log.consumers() == {"one": 11}


def test_output_that_cannot_be_written_acks_nothing(orders: Shell) -> None:
    done = orders.run("tidemill receive orders/ one --format lines > /dev/full")
    assert done.status != 0
    with tm.Log(orders.folder / "orders") as log:
        assert log.consumers() == {"one": 0}


def test_consumers_and_lag(orders: Shell) -> None:
    for command in ("consumers", "lag"):
        assert orders.good(f"tidemill {command} orders/").out == "no consumers\n"
    orders.good("tidemill receive orders/ one --rows 3; tidemill receive orders/ two")
    assert orders.good("tidemill consumers orders/ --json").json() == {
        "consumers": [
            {"name": "one", "pointer": 3, "lag": 7},
            {"name": "two", "pointer": 10, "lag": 0},
        ]
    }
    assert orders.good("tidemill lag orders/").out == "one 7\ntwo 0\n"
    assert orders.good("tidemill lag orders/ two --max 0 --json").json() == {"lag": {"two": 0}}
    late = orders.run("tidemill lag orders/ --max 6")
    assert late.status == 16
    assert "consumer one is 7 rows behind" in late.err
    missing = orders.refused("tidemill lag orders/ three", 4, "not-found")
    assert missing["message"] == "there is no consumer 'three'; there are: one, two"
    orders.refused("tidemill consumers orders/ --remove three --yes", 4, "not-found")
    unasked = orders.refused("tidemill consumers orders/ --remove one", 12, "declined")
    assert "cannot be undone" in unasked["message"]
    orders.good("tidemill consumers orders/ --remove one --yes")
    assert [one["name"] for one in _consumers(orders)] == ["two"]


def _consumers(shell: Shell) -> list[dict[str, object]]:
    found: list[dict[str, object]] = shell.good("tidemill consumers orders/ --json").json()[
        "consumers"
    ]
    return found


def test_trim_stops_at_the_slowest_consumer(orders: Shell) -> None:
    orders.good("tidemill receive orders/ one --rows 3")
    assert orders.good("tidemill trim orders/ --before 8 --json").json() == {
        "first": 4,
        "next": 11,
        "trimmed": 3,
    }
    assert "--force goes further" in orders.good("tidemill trim orders/ --before 8").out
    orders.refused("tidemill trim orders/ --before 8 --force", 12, "declined")
    forced = orders.good("tidemill trim orders/ --before 8 --force --yes --json").json()
    assert forced["first"] == 8
    error = orders.refused("tidemill receive orders/ one", 3, "invalid-input")
    assert "rows 4 to 7 were trimmed before consumer 'one' had them" in error["message"]
    orders.good("tidemill consumers orders/ --remove one --yes")
    rows = orders.good("tidemill receive orders/ one --json").lines()
    assert rows[0]["seq"] == 8
    assert orders.run("tidemill trim orders/ --before 2026-01-01").status == 2


def test_trim_goes_by_age_by_size_and_by_what_was_received(orders: Shell) -> None:
    usage = orders.run("tidemill trim orders/")
    assert usage.status == 2
    assert "--older-than, --bytes-max or --consumed" in usage.err
    assert orders.run("tidemill trim orders/ --bytes-max much").status == 2
    assert orders.good("tidemill trim orders/ --consumed --json").json()["first"] == 1
    orders.good("tidemill receive orders/ one --rows 3")
    done = orders.good("tidemill trim orders/ --consumed --older-than 7d --bytes-max 1TB")
    assert done.out == "the first row is 4; gave up 3\n"
    held = orders.good("tidemill trim orders/ --older-than 0s").out
    assert held == (
        "the first row is 4; gave up 0, up to the slowest consumer: --force goes further\n"
    )
    forced = orders.good("tidemill trim orders/ --bytes-max 0 --force --yes --json").json()
    assert forced == {"first": 11, "next": 11, "trimmed": 7}


def test_archive_keeps_what_the_limits_name_and_trims_the_rest(orders: Shell) -> None:
    orders.good("tidemill receive orders/ one --rows 4")
    done = orders.good("tidemill archive orders/ cold/ --consumed --json").json()
    assert done["rows"] == 4
    orphan = orders.folder / "cold" / "segments" / f"{3:020}-0-abcd.parquet"
    orphan.write_bytes(b"left by a crash")
    done = orders.good("tidemill archive orders/ --keep-bytes 1GB --keep 7d --sweep --json").json()
    assert (done["rows"], done["swept"]) == (0, 1)
    assert not orphan.exists()
    said = orders.good("tidemill archive orders/ --keep-bytes 0 --trim-bytes 0").out
    assert said.startswith("archived 6 rows in 1 segment, ")
    assert said.endswith("; gave up 4 rows\n")
    done = orders.good("tidemill archive orders/ --trim-older-than 30d --json").json()
    assert done == {"rows": 0, "segments": 0, "bytes": 0, "swept": 0, "trimmed": 0}


def test_a_publisher_elsewhere_is_named(orders: Shell) -> None:
    with tm.Log(orders.folder / "orders") as log, log.publisher():
        at_once = "export TIDEMILL_LOCK_WAIT_S=0;"
        error = orders.refused(
            f"{at_once} echo x | tidemill send orders/ - --format lines", 5, "locked"
        )
        assert str(os.getpid()) in error["message"]
        orders.refused(f"{at_once} tidemill trim orders/ --before 3", 5, "locked")
        orders.refused("tidemill archive orders/ cold/ --lock-wait-s 0", 5, "locked")
        assert len(orders.good("tidemill receive orders/ one --json").lines()) == 10


def test_who_would_send_to_an_archive_is_told_that_it_is_one(orders: Shell) -> None:
    orders.good("tidemill archive orders/ cold/ --keep-bytes 0")
    error = orders.refused("echo x | tidemill send cold/ - --format lines", 3, "invalid-input")
    assert error["message"].startswith("cold/ is the archive of a log")


@pytest.mark.parametrize(
    "command", ["receive nope/ one", "consumers nope/", "lag nope/", "trim nope/ --before 3"]
)
def test_what_is_not_there_is_not_made(shell: Shell, command: str) -> None:
    shell.refused(f"tidemill {command}", 4, "not-found")
    assert not (shell.folder / "nope").exists()


def test_a_log_and_a_queue_are_told_apart(orders: Shell) -> None:
    tm.PriorityQueue(orders.folder / "spool").close()
    orders.refused("tidemill len orders/", 4, "not-found")
    orders.refused("tidemill receive spool/ one", 4, "not-found")
    orders.refused("echo x | tidemill send spool/ - --format lines", 4, "not-found")


def test_the_doctor_looks_at_a_log(orders: Shell) -> None:
    assert "All is well" in orders.good("tidemill doctor orders/").out
    path = Path(orders.folder / "orders" / "journal" / f"{1:016d}.segment")
    data = bytearray(path.read_bytes())
    data[data.index(b"row 4")] ^= 1
    path.write_bytes(data)
    assert orders.run("tidemill doctor orders/").status == 9
    done = orders.run("tidemill receive orders/ one")
    assert done.status == 9
    assert "rows 1 to 10 are damaged: " in done.err
    assert "`tidemill doctor" in done.err


def test_consumers_of_a_queue_show_beside_its_owner(shell: Shell) -> None:
    with tm.PriorityQueue(shell.folder / "jobs") as queue:
        queue.consumer("copy").close()
        queue.push([(2, b"b"), (1, b"a"), (3, b"c")])
        with queue.consumer("copy") as copy:
            copy.ack(1)
        assert shell.good("tidemill lag jobs/ --json").json() == {"lag": {"copy": 2}}
        assert shell.run("tidemill lag jobs/ --max 1").status == 16
        shell.good("tidemill consumers jobs/ --remove copy --yes")
        assert queue.consumers() == {}


def test_archive_moves_rows_and_nobody_notices(orders: Shell) -> None:
    done = orders.good("tidemill archive orders/ cold/ --json").json()
    assert (done["rows"], done["segments"]) == (10, 1)
    assert orders.good("tidemill archive orders/ cold/").out == (
        "archived 0 rows in 0 segments, 0 bytes\n"
    )
    rows = orders.good("tidemill receive orders/ billing --json").lines()
    assert [row["seq"] for row in rows] == list(range(1, 11))
    assert orders.good("tidemill doctor orders/ --json").json()["healthy"]
    orders.refused("tidemill archive orders/ elsewhere/", 3, "invalid-input")
    assert orders.run("tidemill archive orders/ cold/ --every soon").status == 2


def test_a_scan_shows_a_log_and_its_archive_and_leaves_no_consumer(orders: Shell) -> None:
    orders.good("tidemill archive orders/ old/; seq 3 | tidemill send orders/ - --format lines")
    shown = orders.good("tidemill scan orders/ --start 9").lines()
    assert [row["seq"] for row in shown] == [9, 10, 11, 12, 13]
    assert list(shown[0]) == ["seq", "time", "value"]
    some = orders.good("tidemill scan orders/ --limit 2 --columns value --format csv").out
    assert some == '"value"\n"row 1"\n"row 2"\n'
    orders.good("tidemill scan orders/ --start 2026-01-01T00:00:00Z --to all.parquet")
    assert pq.read_table(orders.folder / "all.parquet").num_rows == 13
    assert orders.good("tidemill scan old/ --format lines").out.splitlines()[-1] == "row 10"
    assert orders.good("tidemill scan orders/ --start latest").out == ""
    assert orders.good("tidemill consumers orders/").out == "no consumers\n"
    for options, words in (
        ("orders/ --keys 1:2", "neither keys nor forks"),
        ("orders/ --fork audit", "neither keys nor forks"),
        ("orders/ --columns nope", "there are seq, time, value"),
    ):
        error = orders.refused(f"tidemill scan {options}", 3, "invalid-input")
        assert words in error["message"]


def test_stats_of_a_log_say_which_rows_there_are_and_how_far_consumers(orders: Shell) -> None:
    orders.good("tidemill archive orders/ old/; tidemill receive orders/ one --rows 3")
    expected = {
        "schema": [{"name": "value", "type": "binary", "nullable": False}],
        "first": 1,
        "next": 11,
        "rows": 10,
    }
    found = orders.good("tidemill stats orders/ --json").json()
    assert found == {"log": "orders/", **expected, "consumers": {"one": 3}}
    archived = orders.good("tidemill stats old/ --json").json()
    assert archived == {"log": "old/", **expected, "consumers": {}}
    assert "lag of one       7" in orders.good("tidemill stats orders/").out


@pytest.mark.parametrize("command", ["doctor", "journal", "scan", "stats"])
def test_what_looks_at_logs_too_finds_one_by_the_variable_of_logs(
    orders: Shell, command: str
) -> None:
    named = orders.good(f"tidemill {command} orders/").out
    assert orders.good(f"TIDEMILL_LOG=orders/ tidemill {command}").out == named
    orders.good("seq 3 | tidemill push spool/ - --format lines")
    found = orders.good(f"TIDEMILL_LOG=orders/ TIDEMILL_QUEUE=spool/ tidemill {command}").out
    assert found == orders.good(f"tidemill {command} spool/").out != named


def test_a_scan_of_a_queue_has_keys_and_no_start(shell: Shell) -> None:
    shell.good("seq 3 | tidemill push spool/ - --format lines")
    error = shell.refused("tidemill scan spool/ --start 2", 3, "invalid-input")
    assert "--keys" in error["message"]


@pytest.mark.parametrize(
    "command", ["receive old/ billing", "consumers old/", "trim old/ --before 2", "send old/ -"]
)
def test_an_archive_is_only_read_and_says_by_what(orders: Shell, command: str) -> None:
    orders.good("tidemill archive orders/ old/")
    error = orders.refused(f"echo '{{}}' | tidemill {command}", 3, "invalid-input")
    assert "tidemill scan" in error["message"]


def test_archive_keeps_young_rows_hot(orders: Shell) -> None:
    assert orders.good("tidemill archive orders/ cold/ --keep 1h --json").json()["rows"] == 0
    assert orders.good("tidemill archive orders/ cold/ --keep 0s --json").json()["rows"] == 10


def test_archive_goes_on_until_it_is_stopped(orders: Shell) -> None:
    running = subprocess.Popen(
        ["tidemill", "archive", "orders/", "cold/", "--every", "0.05s", "--json"],
        cwd=orders.folder,
        env=orders.environment,
        stdout=subprocess.PIPE,
    )
    try:
        manifest = orders.folder / "cold" / "manifest.json"
        with tm.Log(orders.folder / "orders", read_only=True) as log:
            while not manifest.exists() or b'"next":11' not in manifest.read_bytes():
                assert running.poll() is None
            assert len(log.read(1)) == 10
        running.send_signal(signal.SIGTERM)
        out, _ = running.communicate(timeout=60)
    finally:
        running.kill()
    assert b'"rows": 10' in out
    assert running.returncode == 143
