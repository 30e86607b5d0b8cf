from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

import tidemill as tm
from tidemill.gateway.arguments import fill_positionals
from tidemill.gateway.command_line import COMMANDS, main, parser


def test_version_names_the_version_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"tidemill {tm.__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_is_where_the_list_says(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main([name, "--help"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: tidemill {name} ")


def test_a_command_loads_no_other() -> None:
    program = (
        "import sys; from tidemill.gateway.command_line import parser; parser('len'); "
        "print([name for name in ('pandas', 'pyarrow.compute', 'tidemill.gateway.commands.push') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--help"])
    assert exit_.value.code == 0
    out = capsys.readouterr().out
    assert [name for name in COMMANDS if f"\n    {name} " not in out] == []


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["demo", "--items", "0"]])
def test_wrong_usage_exits_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: tidemill" in capsys.readouterr().err


_URL = "redis://app:hush/hu@sh@127.0.0.1:1/alerts"


@pytest.mark.parametrize(
    "arguments",
    [
        ["ring", "info", _URL, _URL],
        ["ring", "get", _URL, _URL],
        ["ring", "put", _URL, _URL],
        ["ring", "watch", _URL, "--every", _URL],
        ["push", "spool", _URL],
        ["push", "spool", "--from", _URL],
        ["push", "spool", "--schema", _URL],
        ["send", "orders", "--from", _URL],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=["words", "JSON"])
def test_an_address_in_the_wrong_place_is_shown_without_its_password(
    arguments: list[str],
    form: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["tidemill", *arguments, *form])
    with suppress(SystemExit):
        assert main() != 0
    told = "".join(capsys.readouterr())
    assert "hu" not in told
    assert "redis://app@127.0.0.1:1/alerts" in told


@pytest.mark.parametrize(
    ("arguments", "usage"),
    [
        (["push", "queue", "--bogus"], "usage: tidemill push QUEUE"),
        (["counters", "get", "--bogus", "x"], "usage: tidemill counters get NODE NAME"),
        (["--bogus", "push"], "usage: tidemill [-h]"),
    ],
)
def test_an_unknown_option_is_answered_by_the_command_it_was_given_to(
    arguments: list[str], usage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(usage)
    assert "unrecognized arguments: --bogus" in said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("peek spool/ --json 5", {"queue": "spool/", "n": 5}),
        ("push spool/ --format lines -", {"queue": "spool/", "input": "-"}),
        ("delete spool/ --yes -50 -1", {"queue": "spool/", "low": -50, "high": -1}),
        ("delete spool/ -50 --yes -1", {"queue": "spool/", "low": -50, "high": -1}),
        ("archive orders/ --every 30s s3://b/o --sweep", {"queue": "orders/", "url": "s3://b/o"}),
        ("fork create spool/ --of audit retry", {"queue": "spool/", "name": "retry"}),
        ("pipeline run clicks.py --once first second", {"names": ["first", "second"]}),
        ("pipeline run clicks.py first --once second", {"names": ["first", "second"]}),
        ("merge a/ --into log/ b/", {"queues": ["a/", "b/"]}),
    ],
)
def test_arguments_by_place_may_stand_behind_options(
    line: str, expected: dict[str, object]
) -> None:
    options = parser().parse_args(line.split())
    fill_positionals(options)
    assert {name: getattr(options, name) for name in expected} == expected


@pytest.mark.parametrize("line", ["peek spool/ --json 5 6", "restore a/ --json log/ more"])
def test_an_argument_too_many_is_refused_behind_options_as_well(line: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("counters add 127.0.0.1:1 visits x", "'x' is no whole number within int64"),
        ("counters ttl 127.0.0.1:1 visits tomorrow", "'tomorrow' is no time: write 90s"),
        ("counters ttl 127.0.0.1:1 visits 2026-11-16", "has no time zone"),
    ],
)
def test_what_an_argument_of_counters_has_to_be_is_said_in_its_own_words(
    line: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(line.split())
    assert words in capsys.readouterr().err


def test_demo_verifies_a_small_run_and_leaves_an_empty_queue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "--queue", "--items", "25000", "--folder", str(tmp_path / "queue")]) == 0
    assert "came out once" in capsys.readouterr().out
    with tm.PriorityQueue(tmp_path / "queue") as queue:
        assert len(queue) == 0
        assert len(queue.fork("audit")) == 0


def test_an_error_of_ours_is_one_line_and_an_exit_status_of_its_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "letter.txt").write_text("This folder holds something else.")
    assert main(["stats", str(tmp_path)]) == 4
    error = capsys.readouterr().err
    assert error.startswith("tidemill: ")
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pussh"], "there is no command 'pussh'; is it 'push'?"),
        (["fork", "lst"], "there is no command 'lst'; is it 'list'?"),
        (["frobnicate"], "there is no command 'frobnicate'\n'tidemill --help' lists the commands"),
    ],
)
def test_a_command_that_is_none_is_told_with_the_nearest(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert f"tidemill: {words}" in capsys.readouterr().err
