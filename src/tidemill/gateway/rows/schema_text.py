"""A schema on the command line: `city: utf8, at: timestamp[us, UTC], n: int64 not null`.

Types have the names that a folder records. Nested ones are JSON: a file, or text that starts with
`[`, as in `[{"name": "tags", "type": {"list": "utf8"}, "nullable": false}]`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemill.batch.schema import from_description
from tidemill.errors import Corrupt, InvalidInput
from tidemill.gateway.refusal import NotFound

_COLUMN = re.compile(
    r"\s*(?P<name>[^:,]+?)\s*:\s*(?P<type>[\w]+(?:\[[^\]]*\]|\([^)]*\))?)"
    r"(?P<required>\s+not\s+null)?\s*(?:,|$)"
)
_IN_JSON = 'written in JSON: [{"name": "tags", "type": {"list": "utf8"}}, …]'
_OTHER_NAMES = {
    "bytes": "binary",
    "string": "utf8",
    "str": "utf8",
    "text": "utf8",
    "int": "int64",
    "float": "float64",
    "double": "float64",
    "date": "date32",
    "timestamp": "timestamp[us, UTC]",
}


def parse_schema_text(text: str) -> pa.Schema:
    """The schema that a user wrote, or that the named JSON file holds.

    >>> parse_schema_text("city: utf8, n: int64 not null")
    city: string
    n: int64 not null
    >>> parse_schema_text("n: number")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    tidemill.errors.InvalidInput: the schema cannot be read: 'number' is no type: use bool, ...
    """
    if text.lstrip().startswith("["):
        description = _nullable(_json(text))
    elif text.endswith(".json"):
        try:
            description = _nullable(_json(Path(text).read_text(encoding="utf-8")))
        except OSError as error:
            raise NotFound(f"the schema {text} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the schema {text} is no JSON: {error}") from error
    else:
        description = _columns(text)
    try:
        return from_description(description)
    except Corrupt as error:
        cause = error.__cause__ or error
        raise InvalidInput(f"the schema cannot be read: {cause}") from error


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"the schema is no JSON: {error}") from error


def _nullable(description: Any) -> Any:
    """Columns that do not say whether they may be null may be, as in text."""
    if not isinstance(description, list):
        raise InvalidInput(f"the schema is no list of columns, {_IN_JSON}")
    return [
        {"nullable": True, **column} if isinstance(column, dict) else column
        for column in description
    ]


def _columns(text: str) -> list[dict[str, Any]]:
    columns = []
    at = 0
    while at < len(text):
        found = _COLUMN.match(text, at)
        if found is None:
            raise InvalidInput(
                f"the schema cannot be read from {text[at:].strip()!r} on: write NAME: TYPE, …; "
                f"types within types are {_IN_JSON}"
            )
        kind = re.sub(r"\s*,\s*", ", ", found["type"])
        columns.append(
            {
                "name": found["name"],
                "type": _OTHER_NAMES.get(kind, kind),
                "nullable": found["required"] is None,
            }
        )
        at = found.end()
    return columns
