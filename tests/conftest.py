"""What all tests share: how hard hypothesis tries, and numbers that are worth printing."""

from __future__ import annotations

import gc
import os
import signal
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, settings

from tests.lanes import arranged
from tests.services.fixtures import (  # noqa: F401
    database,
    etcd,
    mariadb,
    postgres,
    prefix,
    redis,
    seaweedfs,
)
from tests.services.java import QUICK_JAVA

# A queue syncs to a real disk, whose pauses say nothing about a test; hence no deadlines.
settings.register_profile(
    "test", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("soak", parent=settings.get_profile("test"), max_examples=10_000)
settings.load_profile("soak" if os.environ.get("TIDEMILL_SOAK") == "1" else "test")

# A JVM of a test ends before its second compiler has paid for itself. Whatever starts Spark hands
# this on, also in processes of their own.
os.environ.setdefault("SPARK_SUBMIT_OPTS", QUICK_JAVA)

# A shell that starts the tests in the background lets them, and whatever they start, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Objects made between two looks for garbage; Python's own number suits small programs.
_GARBAGE_MIN = 20_000

_REPORT = "report"
_TALLY = "tally"
_lines = pytest.StashKey[list[str]]()
_sums = pytest.StashKey[Counter[str]]()


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Call it with a line, such as a number of crash states, to have it in the summary of the run.

    The lines travel with the test's result, so that those of parallel workers arrive as well.
    """

    def add(line: str) -> None:
        request.node.user_properties.append((_REPORT, line))

    return add


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[[str, int], None]:
    """Call it with a name and a number; the summary of the run has the sum for each name."""

    def add(name: str, number: int) -> None:
        request.node.user_properties.append((_TALLY, f"{number} {name}"))

    return add


class _Lines:
    """Collects the lines where the summary is printed: in the one process that sees all results."""

    def __init__(self, config: pytest.Config) -> None:
        self._lines = config.stash[_lines]
        self._sums = config.stash[_sums]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # The last phase of a test carries all of its properties, each of the earlier ones a part.
        if report.when == "teardown":
            for kind, line in report.user_properties:
                if kind == _REPORT:
                    self._lines.append(str(line))
                elif kind == _TALLY:
                    number, _, name = str(line).partition(" ")
                    self._sums[name] += int(number)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_lines] = []
    config.stash[_sums] = Counter()
    config.pluginmanager.register(_Lines(config), "tidemill-report-lines")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    worker: dict[str, int] = getattr(config, "workerinput", {})
    items[:] = arranged(items, worker.get("workercount", 1))


def pytest_collection_finish() -> None:
    """Keep the collector of garbage from looking at what is imported by now and stays to the end: a
    quarter of the time of tests that make many objects.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GARBAGE_MIN)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    sums = config.stash[_sums].items()
    lines = config.stash[_lines] + [f"{name}: {number:,}" for name, number in sums]
    if lines:
        terminalreporter.section("what the tests covered")
        for line in sorted(lines):
            terminalreporter.line(line)
