"""What `tidemill push` reports is on disk, though it syncs behind its own back."""

from __future__ import annotations

import re
import shutil

import pytest

import tidemill as tm
from tests.gateway.shell import Shell
from tidemill.gateway.sync_behind import SyncBehind

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
ROWS = 200_000
PUSH = f"seq {ROWS} | strace -f -qq -o calls {{options}} tidemill push q/ -"
PUSH += " --format lines --batch-rows 20000 --json"


def test_a_sync_that_fails_is_raised_once_by_whoever_waits_for_it() -> None:
    def fail() -> None:
        raise tm.StorageFailed("the disk failed")

    behind = SyncBehind(fail)
    behind.begin()
    with pytest.raises(tm.StorageFailed):
        behind.begin()
    behind.finish()
    behind.close()


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "data"])
def test_the_report_comes_after_a_sync_that_began_after_the_last_write(
    shell: Shell, mode: str
) -> None:
    options = "-e trace=pwrite64,pwritev,pwritev2,fdatasync,write"
    done = shell.good(f"{PUSH.format(options=options)} --sync {mode}")
    assert done.json() == {
        "queue": "q/",
        "pushed": ROWS,
        "first": 1,
        "last": ROWS,
        "durability": "synced",
    }
    calls = _merged((shell.folder / "calls").read_text())
    report = next(at for at, call in enumerate(calls) if call.startswith('write(1, "{\\"queue'))
    # Frames are the large ones: the spine and the head, which are derived, are small.
    frames = [at for at, call in enumerate(calls[:report]) if _written(call) > 50_000]
    assert len(frames) == ROWS // 20_000
    synced = [at for at, call in enumerate(calls[:report]) if call.startswith("fdatasync(")]
    assert max(frames) < max(synced)
    # And while rows go in, the disk is asked again and again: no more than a batch is in the air.
    assert len(synced) >= len(frames)


@needs_strace
@pytest.mark.slow
@pytest.mark.parametrize("failing", [3, 5, 8, 10])
def test_a_sync_that_fails_ends_the_push_and_only_what_was_synced_is_reported(
    shell: Shell, failing: int
) -> None:
    # Counted for each thread; the one that syncs has one sync for each batch.
    inject = f"-e trace=fdatasync -e inject=fdatasync:error=EIO:when={failing}+"
    done = shell.run(PUSH.format(options=inject))
    assert done.status == 8, done.err
    error = done.error()
    assert "is not known" in error["message"]
    assert "Input/output error" in (shell.folder / "calls").read_text()
    with tm.PriorityQueue(shell.folder / "q") as queue:
        assert error["pushed"] <= len(queue)
        assert error["pushed"] < ROWS
        assert len(queue) % 20_000 == 0
    assert error["go_on"] == f"--skip-rows {error['pushed']}"


@pytest.mark.slow
def test_without_syncs_nothing_is_called_synced(shell: Shell) -> None:
    for mode in ("none", "index"):
        done = shell.good(f"seq 9 | tidemill push {mode}/ - --format lines --sync {mode} --json")
        assert done.json()["durability"] == "buffered"


def _merged(text: str) -> list[str]:
    """The calls in the order in which they returned, without the threads that made them."""
    calls, begun = [], {}
    for line in text.splitlines():
        thread, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>").rstrip()
        elif call.startswith("<..."):
            calls.append(begun.pop(thread) + re.sub(r"^<\.\.\. \w+ resumed>", "", call))
        else:
            calls.append(call)
    return calls


def _written(call: str) -> int:
    found = re.fullmatch(r"pwrite(?:64|v|v2)\(.*\) = ([0-9]+)", call)
    return int(found[1]) if found else 0
