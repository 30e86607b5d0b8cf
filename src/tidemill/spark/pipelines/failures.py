"""What Spark says when something fails, as an error of ours. Pure."""

from __future__ import annotations

import re

from tidemill import errors
from tidemill.errors import PipelineFailed, TidemillError

# Errors of the source and the sink arrive as the text of a traceback within Spark's own.
_OURS = re.compile(
    r"tidemill\.errors\.([A-Za-z]+): (.+?)(?=\n\S|\n\s*\n|\s*SQLSTATE|\Z)", re.DOTALL
)
_LAST = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Warning|Interrupt)\b.*)$", re.MULTILINE)
_ENDED = re.compile(r"terminated with exception: ")
_LENGTH_MAX = 1_000
_JAVAS = re.compile(r"An error occurred while calling [^\n]*\n: ([^\n]*)")


def failed(
    error: BaseException,
    pipeline: str,
    sink: str | None,
    what: str | None = None,
    *,
    job: str = "pipeline",  # or another that Spark runs
) -> TidemillError:
    """The error to raise for one of Spark's, or of the code of a pipeline.

    >>> text = "boo\\ntidemill.errors.NotAQueue: clicks/ holds no queue\\n SQLSTATE: 38000"
    >>> failed(RuntimeError(text), "copy", "output")
    NotAQueue('pipeline copy, sink output: clicks/ holds no queue')
    >>> print(failed(KeyError("user"), "copy", None, "its function"))
    pipeline copy: its function failed: KeyError: 'user'
    """
    place = f"{job} {pipeline}" + ("" if sink is None else f", sink {sink}")
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        kind = getattr(errors, ours[-1][0], None)
        if isinstance(kind, type) and issubclass(kind, TidemillError):
            return kind(f"{place}: {' '.join(ours[-1][1].split())}")
    said = _gist(error, text)
    return PipelineFailed(
        f"{place}: {what or 'Spark'} failed: {said}", pipeline=pipeline, sink=sink
    )


def is_sparks(error: BaseException) -> bool:
    """Whether Spark raised it, or the bridge to its Java did.

    >>> is_sparks(KeyError("user"))
    False
    """
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j")


def _gist(error: BaseException, text: str) -> str:
    """The one line that says what is wrong."""
    if not is_sparks(error):
        return f"{type(error).__name__}: {text}"
    if "Traceback (most recent call last)" in text:
        behind = text[text.rindex("Traceback (most recent call last)") :]
        lines = _LAST.findall(behind)
        if lines:
            return lines[0][:_LENGTH_MAX]
    javas = _JAVAS.match(text)
    if javas is not None:
        return javas[1][:_LENGTH_MAX]
    parts = _ENDED.split(text, maxsplit=1)
    line = parts[-1].strip().partition("\n")[0]
    return re.sub(r"\s*SQLSTATE: \w+\s*$", "", line)[:_LENGTH_MAX]
