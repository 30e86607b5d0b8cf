"""The commands on counters, through a real shell and against a node that is a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tidemill.gateway.command_line import main
from tidemill.limits import INT64_MAX

# Nodes are processes of their own.
pytestmark = pytest.mark.slow


class Serving:
    """`tidemill counters serve` in the background."""

    def __init__(self, shell: Shell, arguments: str) -> None:
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec tidemill counters serve {arguments} --json"],
            cwd=shell.folder,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors = ""  # what it wrote there, once it has ended
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._process.communicate()[1]
        self.said: dict[str, Any] = json.loads(line)

    def end(self, number: int = signal.SIGTERM) -> int:
        if self._process.poll() is None:
            os.kill(self._process.pid, number)
        self.errors = self._process.communicate(timeout=60)[1] or self.errors
        return self._process.returncode


class Run(Protocol):
    """A command in this process, which spares the start of another."""

    def __call__(self, arguments: str, *, status: int = 0) -> str: ...


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def begin(arguments: str, *, status: int = 0) -> str:
        assert main(["counters", *arguments.split()]) == status, capsys.readouterr().err
        return capsys.readouterr().out

    return begin


@pytest.fixture
def serve(shell: Shell) -> Iterator[Callable[[str], Serving]]:
    started: list[Serving] = []

    def begin(arguments: str) -> Serving:
        started.append(Serving(shell, arguments))
        return started[-1]

    yield begin
    for one in started:
        one.end(signal.SIGKILL)


def test_a_node_is_served_and_used(
    shell: Shell, serve: Callable[[str], Serving], run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = serve("node-1 --path one --listen 127.0.0.1:0 --http 127.0.0.1:0")
    address = one.said["address"]
    two = serve(f"node-2 --listen 127.0.0.1:0 --peer {address} --sync-ms 20")
    assert shell.good(f"tidemill counters add {address} visits 5").out == "5\n"
    monkeypatch.setenv("TIDEMILL_COUNTERS", address)
    assert run("add visits -2") == "3\n"
    assert run(f"add {two.said['address']} visits --json")
    while run("get visits") != "4\n":  # They exchange on their own.
        pass
    assert json.loads(run("get visits --json")) == {"name": "visits", "value": 4}
    parts = [line.split() for line in run("get visits --parts").splitlines()]
    assert parts == [["node", "value"], ["node-1", "3"], ["node-2", "1"]]
    assert json.loads(run("ttl visits 90s --json"))["expires"] is not None
    assert json.loads(run("all --json")) == {"live": {"visits": 4}, "expired": {}}
    assert "node-2" in run("nodes")
    assert run("watch --looks 1").endswith("visits  4\n")
    assert json.loads(run("watch --looks 1 --json"))["value"] == 4
    assert run("ttl visits never") == "visits expires: never\n"
    assert run("delete visits --yes") == "deleted visits\n"
    assert run("all") == "no counters\n"
    assert run("get visits", status=4) == ""
    assert run("remove node-2 --yes") == "removed node-2\n"
    token = (shell.folder / one.said["token_file"]).read_text().strip()
    assert (shell.folder / one.said["token_file"]).stat().st_mode & 0o777 == 0o600
    request = urllib.request.Request(
        f"http://{one.said['http']}/all", headers={"Authorization": f"Bearer {token}"}
    )
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer) == {"live": {}, "expired": {}}
    assert one.end() == 143
    assert two.end(signal.SIGINT) in (13, 130), "it may have heard that it was removed"


def test_values_are_sent_to_a_log(shell: Shell, serve: Callable[[str], Serving]) -> None:
    one = serve(
        "node-1 --path one --listen 127.0.0.1:0 --snapshot-log values --snapshot-every 0.1s"
    )
    shell.good(f"tidemill counters add {one.said['address']} visits 7")
    follow = "timeout 60 tidemill receive values/ chart --follow --format ndjson"
    line = shell.good(f"set +o pipefail; {follow} | grep -m 1 visits").out
    assert json.loads(line)["value"] == 7
    one.end()
    # What was on disk is there again.
    one = serve("node-1 --path one --listen 127.0.0.1:0")
    assert shell.good(f"tidemill counters get {one.said['address']} visits").out == "7\n"


def test_a_counter_that_no_column_holds_is_left_out_of_snapshots(
    shell: Shell, serve: Callable[[str], Serving]
) -> None:
    one = serve("node-1 --listen 127.0.0.1:0 --snapshot-log values --snapshot-every 0.1s")
    address = one.said["address"]
    with tm.Counters("a") as a, tm.Counters("b") as b:
        for node in (a, b):
            # Before either hears of the other, or it would refuse to leave the range.
            node.upsert("huge", INT64_MAX)
            node.upsert("visits", 5)
        for node in (a, b):
            node.add_peer(address)
            assert node.sync() == {address: "ok"}
        follow = "timeout 60 tidemill receive values/ chart --follow --format ndjson"
        shell.good(f"set +o pipefail; {follow} | grep -m 1 'visits.*10'")
    assert one.end() == 143
    warnings = [line for line in one.errors.splitlines() if "no column" in line]
    assert len(warnings) == 1
    assert "no column holds the value of huge, left out" in warnings[0]


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        ("serve node-1 --listen 0.0.0.0:0", 3),
        ("serve node-1 --listen 127.0.0.1:0 --certificate a.pem", 3),
        ("serve node-1 --listen 127.0.0.1:0 --http 127.0.0.1:0", 3),
        ("serve node-1 --peer 127.0.0.1:1 --peers-file peers", 3),
        ("serve no/name", 3),
        ("get 127.0.0.1:1 visits", 15),
        ("get nowhere visits", 3),
        ("delete 127.0.0.1:1 visits", 12),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, arguments: str, status: int) -> None:
    assert run(arguments, status=status) == ""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff" * 20, "holds no token"),
        (b"", "holds no token"),
        (b"two lines\nare no token\n", "holds no token"),
        (None, "is not there"),
    ],
)
def test_a_token_that_is_none_is_told_with_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, words: str
) -> None:
    file = tmp_path / "token" if content is not None else tmp_path / "nowhere" / "token"
    if content is not None:
        file.write_bytes(content)
    serve = ["serve", "n", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--token-file"]
    assert main(["counters", *serve, str(file)]) == (3 if content is not None else 4)
    told = capsys.readouterr().err
    assert str(file) in told
    assert words in told


@pytest.mark.parametrize("bad", ["hush hush hush\udcff", "hush hush\nhush hush", "hush hush"])
def test_a_token_of_the_environment_that_is_none_is_told_without_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], bad: str
) -> None:
    monkeypatch.setenv("TIDEMILL_TOKEN", bad)
    serve = ["serve", "n", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    assert main(["counters", *serve]) == 3
    told = capsys.readouterr().err
    assert "TIDEMILL_TOKEN holds no token" in told
    assert "hush" not in told


@pytest.mark.parametrize(
    "arguments",
    [
        "ttl 127.0.0.1:1 visits soon",
        "get",
        "ttl 127.0.0.1:1 v 7",
        "ttl 127.0.0.1:1 v 9999-12-31T23:59:59-12:00",
        "watch 127.0.0.1:1 --looks 0",
        "watch 127.0.0.1:1 --every 365000d",
        "serve n --snapshot-every 367d",
    ],
)
def test_what_cannot_be_understood_is_told(run: Run, arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments)
    assert ended.value.code == 2


def test_a_node_that_has_to_stop_ends_the_command(
    shell: Shell, serve: Callable[[str], Serving], run: Run
) -> None:
    with tm.Counters("hub", listen="127.0.0.1:0") as hub:
        listen = f"--listen 127.0.0.1:0 --peer {hub.address} --sync-ms 20"
        first = serve(f"node-1 {listen}")
        # The hub knows it before there is another of its name.
        run(f"add {first.said['address']} seen")
        while not hub.all()[0]:
            time.sleep(0.01)
        second = serve(f"node-1 {listen}")
        ended = [one._process.wait(timeout=60) for one in (first,)]
    assert ended == [13]
    assert second.end() == 143
