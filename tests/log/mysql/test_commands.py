"""The commands on a log that is on a server, through a real shell."""

from __future__ import annotations

import subprocess

import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tests.services.mariadb import MariaDB

# Every command starts a Python of its own.
pytestmark = pytest.mark.slow


def test_rows_go_in_come_out_and_are_trimmed(shell: Shell, url: str) -> None:
    sent = shell.good(f"printf 'a\\nb\\nc\\n' | tidemill send {url} - --format lines --json").json()
    assert (sent["first"], sent["last"], sent["durability"]) == (1, 3, "synced")
    rows = shell.good(f"tidemill receive {url} billing --rows 2 --format lines").out
    assert rows == "a\nb\n"
    standing = shell.good(f"tidemill consumers {url} --json").json()
    assert standing == {"consumers": [{"name": "billing", "pointer": 2, "lag": 1}]}
    assert shell.good(f"tidemill lag {url} billing --json").json() == {"lag": {"billing": 1}}
    shell.refused(f"tidemill lag {url} --max 0", 16, "behind")
    shell.good(f"tidemill trim {url} --before 99 --yes")
    with tm.Log(url) as log:
        assert log.ends() == (3, 4)
    assert "All is well." in shell.good(f"tidemill doctor {url}").out


def test_what_was_sent_is_told_without_the_password_of_the_log(
    shell: Shell, mariadb: MariaDB, database: str
) -> None:
    mariadb.execute(f"CREATE USER hushed_{database} IDENTIFIED BY 'hush'")
    mariadb.execute(f"GRANT ALL ON {database}.* TO hushed_{database}")
    place = f"127.0.0.1:{mariadb.port}/{database}/hushed"
    url = f"mysql://hushed_{database}:hush@{place}"
    done = shell.good(f"echo a | tidemill send {url} - --format lines --json")
    assert done.json()["log"] == f"mysql://hushed_{database}@{place}"
    assert "hush@" not in done.out + done.err


def test_a_command_that_follows_ends_when_another_takes_its_place(shell: Shell, url: str) -> None:
    with tm.Log(url) as log, log.publisher() as out:
        out.send(b"a")
        following = subprocess.Popen(
            ["bash", "-c", f"exec tidemill receive {url} billing --follow --format lines"],
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert following.stdout is not None
        assert following.stdout.readline() == b"a\n"
        log.receiver("billing").close()
        _, error = following.communicate(timeout=30)
        assert following.returncode == 13
        assert b"a newer receiver took over" in error


def test_what_is_not_there_is_not_made(shell: Shell, url: str) -> None:
    for command in ("receive {} billing", "consumers {}", "trim {} --before 3 --yes", "doctor {}"):
        shell.refused(f"tidemill {command.format(url)}", 4, "not-found")
    with pytest.raises(tm.NotAQueue):
        tm.Log(url, create=False)
