"""`tidemill consumers` and `tidemill lag`: how far the consumers of a log or a queue are."""

from __future__ import annotations

import argparse
from typing import Any

import tidemill as tm
from tidemill.gateway.arguments import Positional, add_log, add_yes, whole_number
from tidemill.gateway.command import Command
from tidemill.gateway.console import Console, table
from tidemill.gateway.log_opening import open_either
from tidemill.gateway.refusal import NotFound, TooFarBehind


def run(options: argparse.Namespace, console: Console) -> None:
    with open_either(options) as log:
        if options.remove is not None:
            _remove(log, options, console)
            return
        found = _standing(log)
    rows = [(one["name"], f"{one['pointer']:,}", f"{one['lag']:,}") for one in found]
    words = table(("consumer", "pointer", "lag"), rows) if rows else "no consumers"
    console.result(words, {"consumers": found})


def run_lag(options: argparse.Namespace, console: Console) -> None:
    with open_either(options) as log:
        found = _standing(log)
        _check_there(options.consumer, found)
    if options.consumer is not None:
        found = [one for one in found if one["name"] == options.consumer]
    words = "\n".join(f"{one['name']} {one['lag']}" for one in found)
    console.result(words or "no consumers", {"lag": {one["name"]: one["lag"] for one in found}})
    behind = [one for one in found if options.max is not None and one["lag"] > options.max]
    if behind:
        worst = max(behind, key=lambda one: one["lag"])
        raise TooFarBehind(
            f"consumer {worst['name']} is {worst['lag']:,} rows behind, over {options.max:,}"
        )


def _standing(log: tm.Log | tm.PriorityQueue) -> list[dict[str, Any]]:
    pointers = log.consumers()
    next_seq = log.ends().next if isinstance(log, tm.Log) else log.stats().next_seq
    last = next_seq - 1
    return [
        {"name": name, "pointer": pointer, "lag": max(0, last - pointer)}
        for name, pointer in sorted(pointers.items())
    ]


def _check_there(name: str | None, found: list[dict[str, Any]]) -> None:
    names = [one["name"] for one in found]
    if name is not None and name not in names:
        known = ", ".join(names) if names else "none"
        raise NotFound(f"there is no consumer {name!r}; there are: {known}")


def _remove(log: tm.Log | tm.PriorityQueue, options: argparse.Namespace, console: Console) -> None:
    _check_there(options.remove, _standing(log))
    console.confirm(
        lambda: f"Remove consumer {options.remove}? Nothing is kept for it any more.",
        is_sure=options.yes,
    )
    if isinstance(log, tm.Log):
        log.remove_consumer(options.remove)
    else:
        log.consumer(options.remove).remove()
    words = f"removed consumer {options.remove}"
    console.result(words, {"consumer": options.remove, "removed": True})


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser)
    parser.add_argument("--remove", metavar="NAME", help="end this consumer; on a terminal it asks")
    add_yes(parser)


def _lag_arguments(parser: argparse.ArgumentParser) -> None:
    add_log(parser, Positional("consumer", "only this one", is_required=False))
    parser.add_argument(
        "--max", type=whole_number, metavar="ROWS", help="end with status 16 if one is over it"
    )


COMMAND = Command(
    name="consumers",
    summary="print the consumers of a log or queue and how far they are, or end one",
    examples=("tidemill consumers orders/", "tidemill consumers orders/ --remove audit --yes"),
    arguments=_arguments,
    run=run,
)

LAG_COMMAND = Command(
    name="lag",
    summary="print how many rows consumers have yet to ack",
    examples=("tidemill lag orders/", "tidemill lag orders/ billing --max 10000"),
    arguments=_lag_arguments,
    run=run_lag,
)
