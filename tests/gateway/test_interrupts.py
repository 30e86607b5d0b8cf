"""Ctrl-C and SIGTERM: a command ends between steps, and what it says of them is true."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tidemill as tm
from tests.gateway.shell import WITHIN_S, Shell
from tidemill.gateway.interrupts import Interrupts, Terminated

ROWS = 400_000
INTERRUPTS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]


def test_an_interrupt_within_a_step_waits_for_its_end() -> None:
    steps: list[str] = []

    def step() -> None:
        with interrupts.held():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("finished")

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        step()
    assert steps == ["finished"]
    assert not interrupts.is_forced


def test_an_interrupt_between_steps_comes_at_once_and_a_second_one_breaks_in() -> None:
    steps: list[str] = []

    def step() -> None:
        with interrupts.held():
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("begun")
            os.kill(os.getpid(), signal.SIGINT)
            steps.append("not reached")

    with Interrupts() as interrupts:
        with pytest.raises(Terminated):
            os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            step()
    assert steps == ["begun"]
    assert interrupts.is_forced


def test_a_long_step_may_look_whether_it_is_to_end() -> None:
    chunks: list[int] = []

    def step() -> None:
        with interrupts.held():
            for chunk in range(9):
                chunks.append(chunk)
                if chunk == 3:
                    os.kill(os.getpid(), signal.SIGINT)
                interrupts.check()

    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):
        step()
    assert chunks == [0, 1, 2, 3]


def test_the_handlers_of_before_come_back() -> None:
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    with Interrupts():
        assert [signal.getsignal(number) for number in numbers] != before
    assert [signal.getsignal(number) for number in numbers] == before


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status", "kind"), INTERRUPTS)
def test_a_pop_whose_reader_is_slow_pops_nothing(
    shell: Shell, number: int, status: int, kind: str
) -> None:
    fill(shell, "q", ROWS)
    command = start(shell, "exec tidemill pop q/ --all --format lines --json")
    assert command.stdout is not None
    # There is more than the pipe holds, so that the command waits for whoever reads.
    assert command.stdout.read(1) == b"1"
    error = end(command, number, status)
    assert (error["kind"], error["message"]) == (kind, "interrupted")
    assert items(shell, "q") == ROWS


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status", "kind"), INTERRUPTS)
def test_a_pop_to_a_file_leaves_no_part_of_it(
    shell: Shell, number: int, status: int, kind: str
) -> None:
    fill(shell, "q", 4 * ROWS)
    command = start(shell, "exec tidemill pop q/ --all --to out.ndjson --json")
    until(lambda: any(shell.folder.glob(".tidemill-*.partial")), command)
    error = end(command, number, status)
    assert error["kind"] == kind
    assert sorted(path.name for path in shell.folder.iterdir()) == ["bin", "q"]
    assert items(shell, "q") == 4 * ROWS


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status", "kind"), INTERRUPTS)
def test_a_push_says_how_many_rows_are_in(
    shell: Shell, number: int, status: int, kind: str
) -> None:
    command = start(shell, "exec tidemill push q/ - --format lines --batch-rows 1000 --json")
    assert command.stdin is not None
    # More than a block, so that rows are pushed while the rest is waited for.
    command.stdin.write(b"".join(b"%099d\n" % row for row in range(100_000)))
    command.stdin.flush()
    until(lambda: reaches(shell.folder / "q", 2_000_000), command)
    error = end(command, number, status)
    assert error["kind"] == kind
    assert error["durability"] == "synced"
    assert error["pushed"] == items(shell, "q") > 0
    assert error["go_on"] == f"--skip-rows {error['pushed']}"


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status", "kind"), INTERRUPTS)
def test_a_shovel_ends_between_chunks_with_each_item_in_one_queue(
    shell: Shell, number: int, status: int, kind: str
) -> None:
    rows = 20 * ROWS
    fill(shell, "from", rows)
    fill(shell, "to", 1)  # Not empty, so that items are copied.
    command = start(shell, "exec tidemill shovel from/ to/ --json")
    until(lambda: reaches(shell.folder / "to", 5_000_000), command)
    error = end(command, number, status)
    assert error["kind"] == kind
    assert 0 < error["moved"] < rows
    assert items(shell, "to") == error["moved"] + 1
    assert items(shell, "from") == rows - error["moved"]
    shell.good("tidemill shovel from/ to/")
    assert items(shell, "to") == rows + 1


def fill(shell: Shell, name: str, rows: int) -> None:
    shell.good(f"seq {rows} | tidemill push {name}/ --format lines --sync none --bucket shift:40")


def items(shell: Shell, name: str) -> int:
    with tm.PriorityQueue(shell.folder / name, read_only=True) as queue:
        return len(queue)


def start(shell: Shell, script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["bash", "-c", script],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until(is_so: Callable[[], bool], command: subprocess.Popen[bytes]) -> None:
    """Wait for what a command does on disk, which nothing tells but the disk."""
    while not is_so():
        assert command.poll() is None, command.stderr and command.stderr.read()
        time.sleep(0.005)


def end(command: subprocess.Popen[bytes], number: int, status: int) -> dict[str, Any]:
    """Interrupt a command; returns the error that it reports, alone and without a trace."""
    command.send_signal(number)
    _, told = command.communicate(timeout=WITHIN_S)
    assert command.returncode == status, told
    error: dict[str, Any] = json.loads(told)["error"]
    return error


def reaches(folder: Path, offset: int) -> bool:
    """Whether a journal holds so many bytes; what a segment was given in advance is zeroes."""
    for path in folder.glob("journal/*.segment"):
        with open(path, "rb") as file:
            file.seek(offset)
            if file.read(4096).strip(b"\0"):
                return True
    return False


def test_an_interrupt_before_the_command_line_is_loaded_ends_it_without_a_trace() -> None:
    program = """
import os, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "tidemill.gateway.command_line":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from tidemill.__main__ import run
run()
"""
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")
