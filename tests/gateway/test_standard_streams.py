"""Streams that are closed, full, or cannot say every character; terminals that cannot draw."""

from __future__ import annotations

import json
import signal
import subprocess
import time

import pytest

import tidemill as tm
from tests.gateway.shell import WITHIN_S, Shell
from tidemill.gateway.opening import is_queue

# Every command starts a Python of its own.
pytestmark = pytest.mark.slow

ASCII = "LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0"


@pytest.fixture
def spool(shell: Shell) -> Shell:
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        queue.push([(key, b"value") for key in range(9)])
    return shell


def left(shell: Shell) -> int:
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        return len(queue)


def test_a_closed_output_is_told_and_nothing_is_popped_into_it(spool: Shell) -> None:
    for command in ("pop spool/ 3", "scan spool/", "len spool/", "pop spool/ 3 --format csv"):
        error = spool.refused(f"tidemill {command} >&-", 7, "no-access")
        assert "standard output is closed" in error["message"]
    assert left(spool) == 9
    spool.good("tidemill pop spool/ 3 --to x.csv >&- || test $? = 7")
    # What the command itself has to say is all that is lost.
    assert len((spool.folder / "x.csv").read_text().splitlines()) == 4
    assert left(spool) == 6


def test_a_closed_input_is_told(spool: Shell) -> None:
    error = spool.refused("tidemill push new/ - <&-", 7, "no-access")
    assert "standard input is closed" in error["message"]
    assert not (spool.folder / "new").exists()
    spool.refused("tidemill clear spool/ <&-", 12, "declined")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_push_can_be_ended_while_arrow_waits_for_its_input(
    shell: Shell, number: int, status: int
) -> None:
    with push_csv(shell) as command:
        assert command.stdin is not None
        command.stdin.write(b"key,v\n" + b"1,2\n" * 2_000_000)
        command.stdin.flush()
        while not is_queue(str(shell.folder / "q")):
            assert command.poll() is None
            time.sleep(0.01)
        command.send_signal(number)
        assert command.wait(timeout=WITHIN_S) == status  # The input is still open.


def test_a_push_that_fails_ends_well_though_arrow_reads_on(shell: Shell) -> None:
    rows = b"key,v\n" + b"1,2\n" * 750_000 + b"1,2,3\n" + b"1,2\n" * 2_250_000
    command = push_csv(shell)
    _, told = command.communicate(rows, timeout=WITHIN_S)
    assert command.returncode == 3, told
    assert "Expected 2 columns, got 3" in json.loads(told)["error"]["message"]


def push_csv(shell: Shell) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["bash", "-c", "exec tidemill push q/ --format csv --json"],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_a_closed_error_stream_puts_nothing_anywhere_else(spool: Shell) -> None:
    done = spool.run("tidemill len nowhere/ 2>&-")
    assert (done.status, done.out) == (4, "")
    done = spool.run("tidemill len 2>&-")
    assert (done.status, done.out) == (2, "")
    # Nor into the queue, whose files would have got the number of the stream.
    done = spool.run("tidemill push spool/ --format csv 2>&- <<< 'a,b'")
    assert (done.status, done.out) == (0, "no rows to push\n")
    assert "All is well." in spool.good("tidemill doctor spool/ 2>&-").out


def test_every_character_can_be_said_everywhere(shell: Shell) -> None:
    shell.good("""echo '{"key": 1, "é": "☃"}' | tidemill push ünö/ -""")
    assert "\\xe9: string" in shell.good(f"{ASCII} tidemill stats ünö/").out
    stats = json.loads(shell.good(f"{ASCII} tidemill stats ünö/ --json").out)
    assert stats["schema"][0]["name"] == "é"
    assert "é: string" in shell.good("tidemill stats ünö/").out
    # Rows are UTF-8, whatever the terminal is.
    assert shell.good(f"{ASCII} tidemill peek ünö/").lines()[0]["é"] == "☃"
    # A name that is no text at all is still a name.
    done = shell.run("tidemill len $'no\\xff' --json")
    assert done.status == 4
    assert "no\udcff" in json.loads(done.err)["error"]["message"]
    shell.good("seq 3 | tidemill push $'no\\xff' --format lines; tidemill len $'no\\xff'")


@pytest.mark.parametrize(("terminal", "draws"), [("dumb", False), ("xterm", True)])
def test_a_terminal_that_cannot_draw_gets_no_bar(spool: Shell, terminal: str, draws: bool) -> None:
    seen = spool.on_terminal("tidemill scan spool/ --to x.csv", TERM=terminal)
    assert ("scanning" in seen, "\x1b" in seen) == (draws, draws)


def test_a_demo_without_room_for_its_words_says_so(shell: Shell) -> None:
    demo = "tidemill demo --items 1000 --picture x.svg"
    done = shell.run(f"{demo} > /dev/full")
    assert done.status == 6
    assert "standard output" in done.err
    assert shell.run(f"{demo} | head -1").status == 141


def test_work_that_is_done_is_said_to_be_done_although_its_result_cannot_be_written(
    shell: Shell,
) -> None:
    done = shell.run("echo job | tidemill push spool/ - --format lines > /dev/full")
    assert done.status == 6
    assert "but the work is done: pushed 1 row" in done.err
    assert "try again" not in done.err
    assert shell.good("tidemill len spool/").out == "1\n"
