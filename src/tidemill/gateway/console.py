"""Where a command speaks: results to standard output, everything else to standard error.

With `--json` a result is one JSON document, and so is an error; otherwise both are words.
"""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tidemill.errors import Corrupt, Locked, NoAccess, OutcomeUnknown, TidemillError
from tidemill.files.disk.storage import typed
from tidemill.gateway.exit_status import FAILED, ExitStatus, status_of
from tidemill.gateway.refusal import Declined, Stopped, words_of
from tidemill.gateway.standard_streams import check_open, knows_all_characters
from tidemill.progress import NO_PROGRESS, Bar, Bars, Progress, can_draw
from tidemill.urls import without_password

_STANDARD_OUTPUT = Path("standard output")


class Console:
    """Standard output and error, in words or in JSON."""

    def __init__(self, *, is_json: bool, shows_progress: bool) -> None:
        self.is_json = is_json
        self._shows_progress = shows_progress
        self._done: str | None = None  # what came of it, once that is known

    def result(self, words: str, document: Any) -> None:
        """Say what came of it: the words to people, the document to programs."""
        self._done = words
        if self.is_json:
            words = json.dumps(document, ensure_ascii=not knows_all_characters())
        self.line(words)

    def line(self, text: str) -> None:
        """A line of output as it is."""
        try:
            check_open(1)
            sys.stdout.write(text + "\n")
        except (NoAccess, OSError) as error:
            raise _cannot_write(error, self._done) from error

    def line_now(self, text: str) -> None:
        """The same of work that goes on: whoever looks sees it at once."""
        self.line(text)
        self.flush()

    def flush(self) -> None:
        """Have everything written, or raise."""
        if sys.stdout is None:
            return  # Closed from the start, and whoever needed it has raised.
        try:
            sys.stdout.flush()
        except OSError as error:
            raise _cannot_write(error, self._done) from error

    def fail(self, error: BaseException) -> ExitStatus:
        """Say what went wrong; returns the status to end with."""
        status = status_of(error)
        report(words_of(error), status, is_json=self.is_json, data=_data(error))
        return status

    def fail_unforeseen(self, error: Exception) -> ExitStatus:
        """Say what nobody has foreseen, with all that a report of it needs."""
        trace = without_password("".join(traceback.format_exception(error)))
        if not self.is_json:
            sys.stderr.write(trace)
        message = f"this is a fault of ours, please report it: {error!r}"
        report(message, FAILED, is_json=self.is_json, data={"trace": trace})
        return FAILED

    @contextmanager
    def logging(self) -> Iterator[None]:
        """While this is open, what the package logs is said here."""
        logger, handler = logging.getLogger("tidemill"), _Warnings(is_json=self.is_json)
        logger.addHandler(handler)
        try:
            yield
        finally:
            logger.removeHandler(handler)

    def progress(self, what: str) -> Progress:
        """A bar on standard error, if a person is looking at it."""
        if self._shows_progress and not self.is_json and can_draw():
            return Bar(what, sys.stderr)
        return NO_PROGRESS

    def bars(self) -> Bars | None:
        """Several of them; None if nobody is looking."""
        is_seen = self._shows_progress and not self.is_json and can_draw()
        return Bars(sys.stderr) if is_seen else None

    def confirm(self, question: Callable[[], str], *, is_sure: bool) -> None:
        """Go on only if the user says yes; a program says `--yes` beforehand."""
        if is_sure:
            return
        if not all(stream and stream.isatty() for stream in (sys.stdin, sys.stderr)):
            raise Declined("this cannot be undone, and nobody is there to be asked: add --yes")
        sys.stderr.write(f"{question()} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise Declined("nothing was done")


class _Warnings(logging.Handler):
    """What the package logs while a command runs, on standard error and in its form."""

    def __init__(self, *, is_json: bool) -> None:
        super().__init__(logging.WARNING)
        self._is_json = is_json

    def emit(self, record: logging.LogRecord) -> None:
        message, level = without_password(record.getMessage()), record.levelname.lower()
        document = {"log": {"level": level, "message": message}}
        say(json.dumps(document, ensure_ascii=False) if self._is_json else f"{level}: {message}")


def report(message: str, status: ExitStatus, *, is_json: bool, data: dict[str, Any]) -> None:
    """An error on standard error, in words or as a JSON document."""
    message = without_password(message)
    if is_json:
        error = {"kind": status.kind, "status": status.number, "message": message, **data}
        text = json.dumps({"error": error}, ensure_ascii=False)
    else:
        text = f"tidemill: {message}"
    say(text)


def say(text: str) -> None:
    """A line on standard error, if anybody listens."""
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        pass  # Nobody listens any more; the status still tells.


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns side by side, numbers to the right.

    >>> print(table(["fork", "items"], [["audit", "1,200"], ["b", "7"]]))
    fork   items
    audit  1,200
    b          7
    """
    cells = [list(headings), *(list(row) for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(headings))]
    is_number = [
        bool(rows) and all(row[at].replace(",", "").lstrip("-").isdigit() for row in rows)
        for at in range(len(headings))
    ]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, is_number, strict=True)
        ).rstrip()
        for line in cells
    )


def _cannot_write(error: NoAccess | OSError, done: str | None) -> BaseException:
    # A broken pipe is no failure of the disk: the reader has had enough.
    if isinstance(error, BrokenPipeError):
        return error
    failure: TidemillError
    if isinstance(error, NoAccess):
        failure, reason = error, "standard output is closed"
    else:
        failure = typed(error, "writing", _STANDARD_OUTPUT)
        reason = f"standard output cannot be written to: {error.strerror or error}"
    if done is None:
        return failure
    # Whoever does as he is told, and tries again, would do it twice.
    return type(failure)(f"{reason}; but the work is done: {done.partition(chr(10))[0]}")


def _data(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Stopped):
        return {**_data(error.cause), **error.done}
    if isinstance(error, Corrupt):
        return {"path": None if error.path is None else str(error.path), "offset": error.offset}
    if isinstance(error, Locked):
        return {"pid": error.pid}
    if isinstance(error, OutcomeUnknown) and error.operation_id is not None:
        return {"operation_id": error.operation_id}
    return {}
