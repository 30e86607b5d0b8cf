"""Rows of a pipe that does not end, as of `tail -F`: they are in soon after they were written."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import tidemill as tm
from tests.gateway.shell import Shell

# Every command starts a Python of its own.
pytestmark = pytest.mark.slow


@contextmanager
def feeding(shell: Shell, script: str) -> Iterator[subprocess.Popen[bytes]]:
    """A command that reads what we write, until we have no more; it has to succeed."""
    command = subprocess.Popen(
        ["bash", "-c", f"exec {script}"],
        cwd=shell.folder,
        env=shell.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield command
        _, words = command.communicate(timeout=60)
        assert command.returncode == 0, words
    finally:
        command.kill()


def write(command: subprocess.Popen[bytes], text: bytes) -> None:
    assert command.stdin is not None
    command.stdin.write(text)
    command.stdin.flush()


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        ("--format lines", b"one\nhalf of ", b"two\n"),
        ("--binary utf8", b'{"value": "one"}\n{"value": "half ', b'of two"}\n'),
    ],
)
def test_pushed_rows_are_there_while_the_pipe_is_open(
    shell: Shell, options: str, first: bytes, second: bytes
) -> None:
    tm.PriorityQueue(shell.folder / "spool").close()
    with (
        feeding(shell, f"tidemill push spool/ - {options}") as command,
        tm.PriorityQueue(shell.folder / "spool", read_only=True) as beside,
    ):
        write(command, first)
        assert beside.peek(2, wait_s=60).values.to_pylist() == [b"one"]
        write(command, second)
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        assert queue.pop(3).values.to_pylist() == [b"one", b"half of two"]


def test_a_row_of_several_lines_is_waited_for(shell: Shell) -> None:
    tm.PriorityQueue(shell.folder / "spool").close()
    with feeding(shell, "tidemill push spool/ -") as command:
        for piece in (
            b'{\n  "key": 1,\n',
            b'  "value": "one"\n}\n{"key": 2,',
            b'"value": "two"}\n',
        ):
            write(command, piece)
            with pytest.raises(subprocess.TimeoutExpired):
                command.wait(timeout=1.5)
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        assert queue.pop(3).rows() == [(1, b"one"), (2, b"two")]


def test_sent_rows_are_received_while_the_pipe_is_open(shell: Shell) -> None:
    with tm.Log(shell.folder / "orders") as log:
        receiver = log.receiver("billing")
        with feeding(shell, "tidemill send orders/ - --format lines") as command, receiver:
            for value in (b"one", b"two"):
                write(command, value + b"\n")
                batch = receiver.receive(wait_s=60)
                assert batch is not None
                assert batch.rows() == [value]


def test_types_of_new_columns_do_not_hang_on_when_their_rows_came(shell: Shell) -> None:
    with feeding(shell, "tidemill push spool/ -") as command:
        write(command, b'{"key": 1, "n": 1}\n')
        with pytest.raises(subprocess.TimeoutExpired):
            command.wait(timeout=2)
        write(command, b'{"key": 2, "n": 2.5}\n')
    with tm.PriorityQueue(shell.folder / "spool") as queue:
        assert queue.pop(2).payload.column("n").to_pylist() == [1.0, 2.5]


def test_a_producer_has_the_same_batches_whenever_its_rows_come(shell: Shell) -> None:
    script = "tidemill send orders/ - --format lines --producer day-17"
    for pieces in ([b"one\n", b"two\n"], [b"one\ntwo\n"]):
        with feeding(shell, script) as command:
            for piece in pieces:
                write(command, piece)
                with pytest.raises(subprocess.TimeoutExpired):
                    command.wait(timeout=1)
    with tm.Log(shell.folder / "orders") as log:
        assert log.read().rows() == [b"one", b"two"]


def test_who_types_rows_is_told_how_to_end_them(shell: Shell) -> None:
    push = "tidemill push spool/ - --format lines"
    told, status = shell.asked(push, "one\n\x04", question=b"ends them")
    assert (status, "Ctrl-D" in told) == (0, True)
    assert shell.good("tidemill pop spool/ --format lines").out == "one\n"
