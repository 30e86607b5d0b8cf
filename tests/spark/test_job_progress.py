"""What a person at a terminal sees of Spark: a bar while a long job runs, and nothing else."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import threading
from io import StringIO

import pytest

from tidemill.spark import job_progress
from tidemill.spark.job_progress import _Line, _Told

WIPED = "\r\x1b[K"

PROGRAM = """
import sys, time
from tidemill.spark import session

def slow(batches):
    for batch in batches:
        time.sleep(0.5)
        yield batch

def work(word, **options):
    spark = session(master="local[2]", **options)
    assert spark.range(8, numPartitions=8).mapInArrow(slow, "id long").count() == 8
    print(word, file=sys.stderr, flush=True)
    for wrong in ("raise_error('on purpose')", "no_such_column"):
        try:
            spark.range(4).selectExpr(wrong).collect()
            raise SystemExit("it did not fail")
        except Exception as error:
            print(type(error).__name__, file=sys.stderr, flush=True)
    spark.stop()

work("switched off", progress=False)
work("done")
"""
RAISED = "SparkRuntimeException\nAnalysisException\n"


def on_a_terminal(program: str) -> tuple[str, int]:
    """What a program writes to standard error, which is a terminal, and how it ended."""
    ours, theirs = pty.openpty()
    seen = bytearray()

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                seen.extend(piece)
        except OSError:
            pass  # It is closed at the other end.

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    environment.pop("TIDEMILL_NO_PROGRESS", None)
    done = subprocess.run([sys.executable, "-c", program], stderr=theirs, env=environment)
    os.close(theirs)
    reader.join()
    os.close(ours)
    return seen.decode().replace("\r\n", "\n"), done.returncode


@pytest.mark.slow
def test_a_long_job_has_a_bar_that_is_gone_before_the_program_goes_on() -> None:
    seen, status = on_a_terminal(PROGRAM)
    assert status == 0, seen
    before, _, after = seen.partition("done\n")
    # Switched off, nothing but what the program says; on, nothing but the bar in front of it.
    quiet = f"switched off\n{RAISED}"
    assert before.startswith(quiet)
    bar = before.removeprefix(quiet)
    assert re.search(r"Spark [━─]{24} \d+ %  \d tasks  \d+ tasks/s", bar)
    assert bar.endswith(WIPED)
    # On a busy machine the job behind it may be long enough for a bar as well.
    without_bars = [re.sub(r"\r\x1b\[K(Spark [^\r]*)?", "", part) for part in (bar, after)]
    assert without_bars == ["", RAISED]


class Stage:
    def __init__(self, completed: int, total: int) -> None:
        self.num_completed_tasks = completed
        self.num_tasks = total


def test_what_a_server_tells_is_drawn_once_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    told = _Told(_Line(stream))
    told([Stage(1, 4)], 2, "a", False)
    told([Stage(2, 4)], 2, "a", True)
    assert stream.getvalue() == ""
    monkeypatch.setattr(job_progress, "_LONG_S", 0)
    told([Stage(1, 4), Stage(0, 4)], 2, "b", False)
    assert "Spark ━━━" in stream.getvalue()
    assert " 12 %  1 tasks" in stream.getvalue()
    told(None, 0, "b", True)
    assert stream.getvalue().endswith(WIPED)
