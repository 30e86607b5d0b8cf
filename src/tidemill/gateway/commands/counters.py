"""`tidemill counters`: run a node of replicated counters, and use one that runs."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tidemill.gateway.arguments import Positional, add_looks, add_node, add_yes, duration, key
from tidemill.gateway.command import Arguments, Command
from tidemill.gateway.commands import counters_serve
from tidemill.gateway.console import Console, table
from tidemill.gateway.log_opening import moment
from tidemill.gateway.tls_arguments import add_tls, tls_of

if TYPE_CHECKING:
    from tidemill.counters.replication.remote import RemoteCounters

NAME = Positional("name", "of the counter")


@contextmanager
def _node(options: argparse.Namespace) -> Iterator[RemoteCounters]:
    # Other commands do without all that a node needs.
    from tidemill.counters.replication.remote import RemoteCounters  # noqa: PLC0415

    with RemoteCounters(options.queue, tls=tls_of(options)) as remote:
        yield remote


def _get(options: argparse.Namespace, console: Console) -> None:
    with _node(options) as remote:
        if options.parts:
            parts = remote.parts(options.name)
            rows = [(node, f"{value:,}") for node, value in sorted(parts.items())]
            words = table(("node", "value"), rows)
            console.result(words, {"name": options.name, "parts": parts})
            return
        _say(options.name, remote.get(options.name), console)


def _add(options: argparse.Namespace, console: Console) -> None:
    with _node(options) as remote:
        _say(options.name, remote.upsert(options.name, options.delta), console)


def _say(name: str, value: int, console: Console) -> None:
    console.result(str(value), {"name": name, "value": value})


def _ttl(options: argparse.Namespace, console: Console) -> None:
    when = options.when
    found = datetime.now(UTC) + when if isinstance(when, timedelta) else when
    with _node(options) as remote:
        remote.update_ttl(options.name, found)
    words = "never" if found is None else found.isoformat(timespec="milliseconds")
    document = {"name": options.name, "expires": None if found is None else words}
    console.result(f"{options.name} expires: {words}", document)


def _delete(options: argparse.Namespace, console: Console) -> None:
    question = f"delete the counter {options.name} on every node?"
    console.confirm(lambda: question, is_sure=options.yes)
    with _node(options) as remote:
        remote.delete(options.name)
    console.result(f"deleted {options.name}", {"deleted": options.name})


def _all(options: argparse.Namespace, console: Console) -> None:
    with _node(options) as remote:
        live, expired = remote.all()
    rows = [(name, f"{value:,}", "") for name, value in sorted(live.items())]
    rows += [(name, f"{value:,}", "expired") for name, value in sorted(expired.items())]
    words = table(("counter", "value", ""), rows) if rows else "no counters"
    console.result(words, {"live": live, "expired": expired})


def _watch(options: argparse.Namespace, console: Console) -> None:
    """A line for each counter that has changed since the last look."""
    before: dict[str, int] = {}
    left = options.looks
    with _node(options) as remote:
        while left != 0:
            live, _ = remote.all()
            for name in sorted(before.keys() - live.keys()):
                _tell(name, None, None, console)
            for name, value in sorted(live.items()):
                if before.get(name) != value:
                    change = value - before[name] if name in before else None
                    _tell(name, value, change, console)
            before = live
            left = None if left is None else left - 1
            if left != 0:
                threading.Event().wait(options.every.total_seconds())


def _tell(name: str, value: int | None, change: int | None, console: Console) -> None:
    time = datetime.now(UTC)
    shown = "gone" if value is None else f"{value:,}"
    words = f"{time:%H:%M:%S}  {name}  {shown}" + ("" if change is None else f"  {change:+,}")
    document = {"time": time.isoformat(), "name": name, "value": value, "change": change}
    console.result(words, document)
    console.flush()


def _nodes(options: argparse.Namespace, console: Console) -> None:
    with _node(options) as remote:
        nodes = remote.nodes()
    rows = [
        (one["node"], f"{one['behind']:,}", "removed" if one["is_removed"] else "") for one in nodes
    ]
    words = table(("node", "behind", ""), rows) if rows else "no other nodes"
    console.result(words, {"nodes": nodes})


def _remove(options: argparse.Namespace, console: Console) -> None:
    question = f"declare {options.node} gone for good? It can come back only with an empty folder"
    console.confirm(lambda: question, is_sure=options.yes)
    with _node(options) as remote:
        remote.remove_node(options.node)
    console.result(f"removed {options.node}", {"removed": options.node})


def _when(text: str) -> timedelta | datetime | None:
    """How long from now, a time with its zone, or `never`.

    >>> _when("90s"), _when("never")
    (datetime.timedelta(seconds=90), None)
    """
    if text == "never":
        return None
    try:
        return duration(text)
    except argparse.ArgumentTypeError:
        pass  # It may be a time instead.
    return moment(text, "no time: write 90s, 12h, never, or one")


def _delta(text: str) -> int:
    try:
        return key(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number within int64") from None


def _arguments(*others: Positional, asks: bool = False) -> Arguments:
    def add(parser: argparse.ArgumentParser) -> None:
        add_node(parser, *others)
        add_tls(parser)
        if asks:
            add_yes(parser)

    return add


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    _arguments(NAME)(parser)
    parser.add_argument("--parts", action="store_true", help="what each node has counted")


def _watch_arguments(parser: argparse.ArgumentParser) -> None:
    _arguments()(parser)
    add_looks(parser)


COMMAND = Command(
    name="counters",
    summary="run a node of replicated counters, and use one that runs",
    children=(
        counters_serve.COMMAND,
        Command(
            name="get",
            summary="print the value of a counter",
            examples=(
                "tidemill counters get 127.0.0.1:7801 visits",
                "tidemill counters get 127.0.0.1:7801 visits --parts",
            ),
            arguments=_get_arguments,
            run=_get,
        ),
        Command(
            name="add",
            summary="add to a counter, and print its new value",
            examples=(
                "tidemill counters add 127.0.0.1:7801 visits",
                "tidemill counters add 127.0.0.1:7801 stock -3",
            ),
            arguments=_arguments(
                NAME,
                Positional("delta", "how much; default 1", _delta, is_required=False, default=1),
            ),
            run=_add,
        ),
        Command(
            name="ttl",
            summary="let a counter expire: in a while, at a time, or never",
            examples=(
                "tidemill counters ttl 127.0.0.1:7801 visits 90s",
                "tidemill counters ttl 127.0.0.1:7801 visits never",
            ),
            arguments=_arguments(NAME, Positional("when", "90s, 12h, a time, or never", _when)),
            run=_ttl,
        ),
        Command(
            name="delete",
            summary="delete a counter, on every node",
            examples=("tidemill counters delete 127.0.0.1:7801 visits --yes",),
            arguments=_arguments(NAME, asks=True),
            run=_delete,
        ),
        Command(
            name="all",
            summary="print all counters, also those that have expired",
            examples=("tidemill counters all 127.0.0.1:7801",),
            arguments=_arguments(),
            run=_all,
        ),
        Command(
            name="watch",
            summary="print counters as they change, until it is stopped",
            examples=("tidemill counters watch 127.0.0.1:7801 --every 5s",),
            arguments=_watch_arguments,
            run=_watch,
        ),
        Command(
            name="nodes",
            summary="print the nodes that a node knows, and how far they are behind it",
            examples=("tidemill counters nodes 127.0.0.1:7801",),
            arguments=_arguments(),
            run=_nodes,
        ),
        Command(
            name="remove",
            summary="declare a node gone for good, so that nobody waits for it",
            examples=("tidemill counters remove 127.0.0.1:7801 node-3 --yes",),
            arguments=_arguments(Positional("node", "its id"), asks=True),
            run=_remove,
        ),
    ),
)
