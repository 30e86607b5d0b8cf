"""`tidemill journal`: the records of a journal, as they lie on disk."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from tidemill.files.readers.listing import ListedRecord, list_records
from tidemill.gateway.arguments import add_queue_or_log
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console
from tidemill.gateway.opening import check_is_queue

_LINE = "{:>16}  {:>10}  {:<10}  {:>10}  {:>9}  {:<6}  {}"
_DETAILS_LENGTH_MAX = 120


def run(options: argparse.Namespace, console: Console) -> None:
    check_is_queue(options.queue)
    if not console.is_json:
        console.line(
            _LINE.format("segment", "offset", "kind", "bytes", "rows", "commit", "what it says")
        )
    for record in list_records(Path(options.queue)):
        console.line(json.dumps(asdict(record)) if console.is_json else _words(record))


def _words(record: ListedRecord) -> str:
    said = record.details
    if isinstance(said, dict):
        said = ", ".join(f"{name} {value}" for name, value in said.items())
    elif not isinstance(said, str):
        said = json.dumps(said, ensure_ascii=False)
    if len(said) > _DETAILS_LENGTH_MAX:
        said = said[: _DETAILS_LENGTH_MAX - 1] + "…"
    return _LINE.format(
        record.segment,
        record.offset,
        record.kind,
        record.length,
        record.rows or "",
        "yes" if record.commit else "",
        said,
    )


COMMAND = Command(
    name="journal",
    summary="print the records of the journal as they lie on disk",
    details="It locks and changes nothing, and shows damage where it finds it.",
    examples=("tidemill journal spool/", "tidemill journal spool/ --json | jq -c .kind | uniq -c"),
    arguments=add_queue_or_log,
    run=run,
)
