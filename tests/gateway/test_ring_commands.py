"""The commands on a ring, on a real Redis: most within this process, since there are many, and some
through a real shell.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from itertools import count
from pathlib import Path

import pytest

import tidemill as tm
from tests.gateway.shell import WITHIN_S, Done, Shell
from tests.services.redis import Redis
from tidemill.gateway import ring_entries
from tidemill.gateway.command_line import main

_names = count(1)


class Commands:
    """Runs commands in this process, with a file for their input."""

    def __init__(self, folder: Path, printed: pytest.CaptureFixture[str]) -> None:
        self._input = folder / "input"
        self._printed = printed

    def run(self, *arguments: str, given: bytes | None = None) -> Done:
        """Run a command to its end."""
        if given is not None:
            self._input.write_bytes(given)
            arguments = (*arguments, "--from", str(self._input))
        self._printed.readouterr()
        status = main(["ring", *arguments])
        said = self._printed.readouterr()
        return Done(status, said.out, said.err)

    def good(self, *arguments: str, given: bytes | None = None) -> Done:
        """Run a command that has to succeed."""
        done = self.run(*arguments, given=given)
        assert done.status == 0, done.err
        return done


@pytest.fixture
def commands(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Commands:
    return Commands(tmp_path, capfd)


@pytest.fixture
def url(redis: Redis) -> str:
    """That of a ring which is not there."""
    return redis.url_of(f"commands-{os.getpid()}-{next(_names)}")


@pytest.fixture
def ring(url: str) -> str:
    """That of a ring for three entries."""
    tm.Ring(url, capacity=3).close()
    return url


def test_a_ring_is_made_filled_and_emptied(commands: Commands, url: str) -> None:
    run = commands.good
    made = run("create", url, "--capacity", "10", "--slots-per-record", "4", "--json").json()
    assert (made["created"], made["capacity"], made["slots_per_record"]) == (True, 10, 4)
    again = run("create", url, "--capacity", "10").out
    assert again.startswith("there already: ring commands-")
    assert run("put", url, "hello").out == "put in 1 entry, from offset 0 on\n"
    put = run("put", url, "--format", "ndjson", "--json", given=b'{"id":1}\n[null]\n')
    assert put.json() == {"put": 2, "first": 1}
    assert run("put", url, given=b"\xff").out == "put in 1 entry, from offset 3 on\n"
    assert run("get", url, "1", "--count", "2").lines() == [
        {"offset": 1, "value": {"id": 1}},
        {"offset": 2, "value": [None]},
    ]
    assert run("take", url, "9").lines() == [
        {"offset": 0, "text": "hello"},
        {"offset": 1, "value": {"id": 1}},
        {"offset": 2, "value": [None]},
        {"offset": 3, "base64": "/w=="},
    ]
    assert run("take", url).out == ""
    info = run("info", url, "--json").json()
    assert (info["length"], info["tail"], info["groups"]) == (0, 4, {"default": 0})
    assert info["problems"] == []


def test_values_alone_and_a_ring_of_the_environment(
    commands: Commands, ring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIDEMILL_RING", ring)
    commands.good("put", given=b"a\nb\r\nc")
    assert commands.good("take", "2", "--format", "lines").out == "a\nb\n"
    assert commands.good("put", "value").out == "put in 1 entry, from offset 3 on\n"
    # What names a ring is the ring, and no value.
    assert commands.good("put", ring, given=b"").out == "put in 0 entries\n"


def test_a_full_ring_has_its_own_status(commands: Commands, ring: str) -> None:
    commands.good("put", ring, given=b"1\n2\n")
    full = commands.run("put", ring, "--json", given=b"3\n4\n")
    assert full.status == 6
    assert full.error()["kind"] == "full"
    assert "is full: it holds 2 of 3 entries" in full.error()["message"]
    assert "in a shell: --overwrite" in full.error()["message"]
    many = commands.good("put", ring, "--overwrite", "--json", given=b"1\n2\n3\n4\n5\n6\n7\n")
    assert many.json() == {"put": 7, "first": 2}
    assert commands.good("take", ring, "9", "--format", "lines").out == "5\n6\n7\n"


def test_groups_take_for_themselves(commands: Commands, ring: str) -> None:
    unknown = commands.run("take", ring, "--group", "audit", "--json")
    assert unknown.status == 4
    assert "there are: default" in unknown.error()["message"]
    made = commands.good("group", ring, "audit").out
    assert made == "made group audit with 0 entries before it\n"
    commands.good("put", ring, "one")
    taken = commands.good("take", ring, "--group", "audit").lines()
    assert taken == [{"offset": 0, "text": "one"}]
    shown = commands.good("info", ring).out
    assert "default        1" in shown
    assert "audit          0" in shown
    assert commands.run("group", ring, "audit", "--remove").status == 12
    removed = commands.good("group", ring, "audit", "--remove", "--yes").out
    assert removed == "removed group audit, which had 0 entries before it\n"


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ("take URL", 4, "tidemill ring create"),
        ("info redis://:hush@127.0.0.1:1/x?timeout_s=0.1", 15, "redis://127.0.0.1:1"),
        ("info folder/", 3, "records cannot be kept in a folder"),
        ("put URL --from nothing.txt", 4, "there is no ring"),
    ],
)
def test_what_is_refused(
    commands: Commands, url: str, arguments: str, status: int, words: str
) -> None:
    done = commands.run(*arguments.replace("URL", url).split(), "--json")
    assert done.status == status, done.err
    assert words in done.error()["message"]
    assert "hush" not in done.err


def test_bad_input_leaves_no_trace(commands: Commands, ring: str) -> None:
    bad = commands.run("put", ring, "--format", "ndjson", "--json", given=b"1\nnot json\n")
    assert bad.status == 3
    assert "a line is no JSON" in bad.error()["message"]
    assert commands.good("info", ring, "--json").json()["tail"] == 0
    missing = commands.run("put", ring, "--from", "nothing.txt", "--json")
    assert missing.status == 4
    assert missing.error()["message"] == "there is no file nothing.txt"
    both = commands.run("put", ring, "value", "--json", given=b"line")
    assert (both.status, both.error()["message"]) == (3, "a value and --from exclude each other")
    outside = commands.run("get", ring, "7", "--json")
    assert outside.status == 4
    assert "has no entry at offset 7; it is empty" in outside.error()["message"]


def test_a_ring_is_removed_by_whoever_is_sure(commands: Commands, ring: str) -> None:
    commands.good("put", ring, "x")
    refused = commands.run("remove", ring)
    assert refused.status == 12
    assert "add --yes" in refused.err
    assert commands.good("info", ring, "--json").json()["length"] == 1
    name = ring.rpartition("/")[2]
    assert commands.good("remove", ring, "--yes").out == f"removed ring {name}\n"
    gone = commands.run("remove", ring, "--yes")
    assert "there is no ring" in gone.err
    assert gone.status == commands.run("info", ring).status != 0


def test_a_ring_whose_buffers_are_lost_is_removed(commands: Commands, url: str) -> None:
    lost = f"memory:{url.rpartition('/')[2]}"
    with tm.Ring(url, capacity=3, buffers=lost):
        pass
    assert "name that as `buffers`" in commands.run("info", url).err
    assert commands.good("remove", url, "--yes", "--json").json()["removed"] is True
    assert "there is no ring" in commands.run("info", url).err


@pytest.mark.slow
def test_settings_that_void_what_the_store_confirms_are_told(
    commands: Commands, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with Redis(tmp_path_factory.mktemp("lax"), "--appendonly", "no") as server:
        tm.Ring(server.url_of("lax"), capacity=3).close()
        shown = commands.good("info", server.url_of("lax")).out
    assert "warning: appendonly = no: a restart of Redis loses" in shown


@pytest.mark.slow
def test_looks_are_lines(commands: Commands, ring: str) -> None:
    watch = ("watch", ring, "--every", "0.05s", "--looks", "2")
    assert [look["length"] for look in commands.good(*watch, "--json").lines()] == [0, 0]
    first, second = commands.good(*watch).out.splitlines()
    assert first.endswith("0 of 3  default 0")
    assert "+0/s" in second


@pytest.mark.slow
def test_an_input_that_breaks_off_says_what_is_in(shell: Shell, ring: str) -> None:
    """Lines go in as they come, and do not wait for more."""
    with (
        subprocess.Popen(
            ["tidemill", "ring", "put", ring, "--json"],
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=shell.environment,
            cwd=shell.folder,
        ) as putting,
        tm.Ring(ring) as looking,
    ):
        assert putting.stdin is not None
        putting.stdin.write(b"1\n2\n3\n")
        putting.stdin.flush()
        deadline_s = time.monotonic() + 60
        while looking.info().length < 3:
            assert putting.poll() is None
            assert time.monotonic() < deadline_s, "they wait for more"
            time.sleep(0.01)
        _, told = putting.communicate(b"4\n5\n", timeout=WITHIN_S)
    assert putting.returncode == 6
    error = json.loads(told)["error"]
    assert error["put"] == 3
    assert "3 entries went in before that" in error["message"]


@pytest.mark.slow
def test_take_waits_for_an_entry(shell: Shell, ring: str) -> None:
    script = (
        f"tidemill ring take {ring} --wait-s 100 & sleep 0.3; tidemill ring put {ring} x >&2; wait"
    )
    assert shell.good(script).lines() == [{"offset": 0, "text": "x"}]


@pytest.mark.slow
def test_nothing_is_taken_into_a_closed_output_and_what_was_put_is_said(
    shell: Shell, ring: str
) -> None:
    done = shell.run(f"tidemill ring put {ring} one >&-")
    assert done.status == 7
    assert "standard output is closed; but the work is done: put in 1 entry" in done.err
    assert shell.run(f"tidemill ring take {ring} >&-").status == 7
    assert shell.good(f"tidemill ring take {ring}").lines() == [{"offset": 0, "text": "one"}]


def test_a_line_without_an_end_is_bounded(
    commands: Commands, ring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ring_entries, "LINE_BYTES_MAX", 3 << 20)
    long = b"a\r\nb\n" + bytes(4 << 20)
    done = commands.run("put", ring, "--json", given=long)
    assert (done.status, done.error()["put"]) == (3, 2)
    assert "a line of more than 3 MiB" in done.error()["message"]
    assert [one["text"] for one in commands.good("take", ring, "3").lines()] == ["a", "b"]


@pytest.mark.slow
def test_what_was_taken_and_could_not_be_written_is_told(shell: Shell, ring: str) -> None:
    shell.good(f"tidemill ring put {ring} one")
    lost = shell.run(f"tidemill ring take {ring} --json > /dev/full")
    assert lost.status == 6
    assert "entries 0 to 0 were taken, and not all are written" in lost.error()["message"]


@pytest.mark.slow
def test_a_terminal_shows_bars_that_are_drawn_over(shell: Shell, ring: str) -> None:
    drawn = shell.on_terminal(f"tidemill ring watch {ring} --every 0.05s --looks 2")
    assert "default" in drawn
    assert "\x1b[2F\x1b[J" in drawn


@pytest.mark.slow
def test_watch_ends_with_an_interrupt(shell: Shell, ring: str) -> None:
    with subprocess.Popen(
        ["tidemill", "ring", "watch", ring, "--every", "60s"],
        stdout=subprocess.PIPE,
        env=shell.environment,
        cwd=shell.folder,
    ) as watching:
        assert watching.stdout is not None
        assert watching.stdout.readline()
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0


def test_on_a_terminal_a_removal_asks_and_says_what_is_left_behind(
    shell: Shell, ring: str, url: str, redis: Redis
) -> None:
    asked, status = shell.asked(f"tidemill ring remove {ring}", "")
    assert "which has 0 entries?" in asked
    assert status == 12
    tm.Ring(ring).close()
    apart = redis.url_of(f"apart-{os.getpid()}-{next(_names)}")
    tm.Ring(apart, capacity=3, buffers=url).close()
    asked, status = shell.asked(f"tidemill ring remove {apart}", "y")
    assert "leave behind what is in other stores?" in asked
    assert status == 0
    with pytest.raises(tm.NotAQueue):
        tm.Ring(apart, buffers=url)
