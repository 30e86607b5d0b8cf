"""The commands that errors and findings tell people to run are commands that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

import tidemill as tm
from tidemill.files import advice
from tidemill.gateway.command_line import main, parser

FOLDER = Path("my spool")


@pytest.mark.parametrize(
    "words",
    [
        advice.doctor(FOLDER),
        advice.upgrade(FOLDER),
        advice.quarantine(FOLDER),
        advice.set_aside(FOLDER),
        advice.rewrite(FOLDER),
        advice.rebuild(FOLDER),
    ],
)
def test_advice_is_a_command_that_exists(words: str) -> None:
    (command,) = re.findall(r"`(.*?)`", words)
    program, *arguments = shlex.split(command)
    assert program == "tidemill"
    parser().parse_args(arguments)


def test_the_doctor_answers_in_the_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with tm.PriorityQueue(tmp_path / "spool") as queue:
        queue.push([b"a"])
    assert main(["doctor", str(tmp_path / "spool")]) == 0
    assert "All is well." in capsys.readouterr().out
