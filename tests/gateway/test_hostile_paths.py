"""Commands in surroundings that are against them: names, modes, devices, disks, dead ends."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.gateway.shell import Shell

# Every command starts a Python of its own, several times over.
pytestmark = pytest.mark.slow

LOOKING = ("len", "journal", "doctor", "fork list", "quarantine list")
CHANGING = ("pop", "upgrade", "doctor --repair")
# Parts of a folder, and the commands that need them.
NEEDED = {
    ".": (*LOOKING, *CHANGING),
    "journal": ("len", "journal", "doctor", "pop"),
    "settings.json": ("len", "doctor", *CHANGING),
    "lock": CHANGING,
}
# Root may read everything, unless it does without its capabilities.
PLAIN = "setpriv --inh-caps=-all --bounding-set=-all" if os.geteuid() == 0 else ""
needs_modes = pytest.mark.skipif(
    bool(PLAIN) and shutil.which("setpriv") is None, reason="root is not bound by modes"
)


@pytest.fixture
def spool(shell: Shell) -> Shell:
    """A shell beside a queue of the values 1 to 9."""
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        queue.push([(key, str(key).encode()) for key in range(1, 10)])
    return shell


def left(shell: Shell) -> int:
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        return len(queue)


def test_a_device_is_written_to(spool: Shell) -> None:
    assert spool.good("tidemill pop spool/ --to /dev/stdout --format lines --json").out == (
        '1\n{"popped": 1, "to": "/dev/stdout"}\n'
    )
    spool.refused("tidemill pop spool/ --to /dev/full --format lines", 6, "full")
    spool.refused("tidemill pop spool/ 9 --to /dev/full --format parquet", 6, "full")
    assert left(spool) == 8


def test_the_name_of_a_folder_is_no_file_to_write_to(spool: Shell) -> None:
    before = left(spool)
    for to in ("bin/", "nowhere/"):
        spool.refused(f"tidemill pop spool/ --to {to} --format csv", 3, "invalid-input")
    assert left(spool) == before
    assert not (spool.folder / "nowhere").exists()


def test_a_named_pipe_is_written_to_and_never_replaced(spool: Shell) -> None:
    # As a device would be; but a test that fails is not to cost this machine one of them.
    pop = "tidemill pop spool/ 4 --to pipe --format lines --overwrite"
    spool.good(f"mkfifo pipe; cat pipe > got & {pop} && wait")
    assert (spool.folder / "got").read_text() == "1\n2\n3\n4\n"
    assert stat.S_ISFIFO((spool.folder / "pipe").stat().st_mode)


def test_a_file_that_is_replaced_keeps_its_mode_and_the_links_to_it(spool: Shell) -> None:
    spool.good("touch secret.csv; chmod 600 secret.csv; ln -s secret.csv link.csv")
    spool.refused("tidemill pop spool/ --to link.csv", 3, "invalid-input")
    spool.good("tidemill pop spool/ 2 --to link.csv --overwrite")
    assert (spool.folder / "link.csv").is_symlink()
    found = spool.folder / "secret.csv"
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    assert len(found.read_text().splitlines()) == 3
    spool.good("ln -s later.csv dangling.csv; tidemill pop spool/ --to dangling.csv")
    assert (spool.folder / "later.csv").is_file()
    assert left(spool) == 6


def test_names_that_no_file_can_have_are_refused(spool: Shell) -> None:
    long = "x" * 300
    for command in (*LOOKING, *CHANGING):
        error = spool.refused(f"tidemill {command} {long}", 3, "invalid-input")
        assert "too long" in error["message"]
    spool.refused(f"seq 3 | tidemill push {long} --format lines", 3, "invalid-input")
    spool.refused(f"tidemill push spool/ --from {long}.csv", 4, "not-found")
    spool.refused(f"tidemill pop spool/ --to {long}.csv", 3, "invalid-input")
    # The longest name that a file can have is good; the draft of it has a name of its own.
    spool.good(f"tidemill pop spool/ --to {'y' * 251}.csv")
    spool.refused("tidemill len ''", 2, "usage")
    spool.refused("TIDEMILL_QUEUE= tidemill len", 2, "usage")
    assert left(spool) == 8


def test_a_queue_is_not_moved_into_itself(spool: Shell) -> None:
    for target in ("spool/", "./spool", "spool/deeper", "spool/journal", "bin/../spool/x"):
        message = spool.refused(f"tidemill shovel spool/ {target}", 3, "invalid-input")["message"]
        assert "name another folder" in message
    assert left(spool) == 9
    assert not (spool.folder / "spool" / "deeper").exists()


@needs_modes
@pytest.mark.parametrize("part", NEEDED)
def test_what_may_not_be_read_is_named_and_nothing_is_lost(spool: Shell, part: str) -> None:
    forbidden = spool.folder / "spool" / part
    mode = stat.S_IMODE(forbidden.stat().st_mode)
    forbidden.chmod(0)
    try:
        for command in NEEDED[part]:
            error = spool.refused(f"{PLAIN} tidemill {command} spool/", 7, "no-access")
            assert "spool" in error["message"], command
            assert part == "." or part in error["message"], command
        push = f"seq 3 | {PLAIN} tidemill push spool/ --format lines"
        spool.refused(push, 7, "no-access")
    finally:
        forbidden.chmod(mode)
    assert left(spool) == 9


@needs_modes
def test_a_folder_that_may_not_be_written_to_is_refused_without_a_trace(spool: Shell) -> None:
    spool.good("mkdir closed; chmod 500 closed")
    spool.refused(f"seq 3 | {PLAIN} tidemill push closed/q --format lines", 7, "no-access")
    spool.refused(f"{PLAIN} tidemill pop spool/ --to closed/x.csv", 7, "no-access")
    spool.refused(f"{PLAIN} tidemill shovel spool/ closed/q", 7, "no-access")
    spool.refused(f"{PLAIN} tidemill bench closed/", 7, "no-access")
    spool.refused(f"{PLAIN} tidemill demo --items 10 --picture closed/x.svg", 7, "no-access")
    spool.refused("tidemill demo --items 10 --picture closed", 3, "invalid-input")
    assert list((spool.folder / "closed").iterdir()) == []
    assert left(spool) == 9


@needs_modes
def test_warnings_are_json_where_json_was_asked_for(spool: Shell) -> None:
    readers = spool.folder / "spool" / "readers"
    readers.mkdir(exist_ok=True)
    readers.chmod(0)
    try:
        told = spool.run(f"{PLAIN} tidemill pop spool/ --json").err
        words = spool.run(f"{PLAIN} tidemill pop spool/").err
    finally:
        readers.chmod(0o700)
    documents = [json.loads(line) for line in told.splitlines()]
    assert [document["log"]["level"] for document in documents] == ["warning"]
    assert "dead readers" in documents[0]["log"]["message"]
    assert words.startswith("warning: dead readers")


@pytest.fixture
def small_disk(shell: Shell) -> Iterator[Path]:
    """A disk of 100 MiB: room for one segment, not for two."""
    disk = shell.folder / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=100m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(["mount", *options]).returncode:
        pytest.skip("this user may not mount a disk of memory")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_stops_a_push_with_what_is_in_and_how_to_go_on(
    shell: Shell, small_disk: Path
) -> None:
    rows = "seq 9000000"
    error = shell.refused(f"{rows} | tidemill push disk/q --format lines", 6, "full")
    assert 0 < error["pushed"] < 9_000_000
    assert error["go_on"] == f"--skip-rows {error['pushed']}"
    assert int(shell.good("tidemill len disk/q").out) == error["pushed"]
    # Output that finds no room pops nothing, and leaves no part of a file.
    shell.good("head -c 40M /dev/zero > disk/ballast || true")
    shell.refused("tidemill pop disk/q --all --to disk/out.ndjson", 6, "full")
    assert sorted(path.name for path in small_disk.iterdir()) == ["ballast", "q"]
    assert int(shell.good("tidemill len disk/q").out) == error["pushed"]
    shell.good("rm disk/ballast")
    last = shell.good("tidemill pop disk/q --all --format lines | tail -1").out
    assert int(last) == error["pushed"]
    assert shell.good("tidemill len disk/q").out == "0\n"


def test_a_disk_too_small_for_a_queue_says_so(shell: Shell, small_disk: Path) -> None:
    shell.good("head -c 60M /dev/zero > disk/ballast || true")
    message = shell.refused("seq 3 | tidemill push disk/q --format lines", 6, "full")["message"]
    assert "No space left" in message
    shell.good("rm disk/ballast; seq 3 | tidemill push disk/q --format lines")
    assert shell.good("tidemill len disk/q").out == "3\n"


def test_a_fault_of_ours_is_a_report_and_not_a_bare_trace(shell: Shell) -> None:
    broken = "import tidemill.gateway.commands.length as l, tidemill.gateway.command_line as c, sys"
    (shell.folder / "broken.py").write_text(
        f"{broken}\nl.open_to_look = None\nsys.exit(c.main(sys.argv[1:]))\n"
    )
    done = shell.run(f"{sys.executable} broken.py len x --json")
    assert done.status == 1
    error = done.error()
    assert error["kind"] == "failed"
    assert "Traceback" in error["trace"]
    words = shell.run(f"{sys.executable} broken.py len x").err
    assert "please report it" in words.splitlines()[-1]
