"""`tidemill ring`: make a ring on a record store, put entries in, take them out, look at it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import tidemill as tm
from tidemill.gateway.arguments import (
    OneOf,
    Positional,
    add_ring,
    add_yes,
    positive,
    seconds,
    whole_number,
)
from tidemill.gateway.command import Command
from tidemill.gateway.commands.ring_watch import WATCH_COMMAND
from tidemill.gateway.console import Console, table
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.refusal import NotFound, Stopped
from tidemill.gateway.ring_entries import FORMATS, open_lines, parsed, write_entries
from tidemill.gateway.ring_opening import info_document, open_ring, problems_of, ring_address
from tidemill.gateway.standard_streams import check_open
from tidemill.records.address import RecordAddress
from tidemill.records.ring_end import RingEnd
from tidemill.shown import counted

PUT_DETAILS = """
Without a value the lines of --from go in, or of standard input, each an entry. A line is bytes as
it is; with --format ndjson it is JSON, and comes out as such. Lines go in as they come, some at a
time, each of these wholly or not at all; if it breaks off, the message says how many are in.

A full ring ends the command with status 6, unless --wait-s gives it time to become emptier or
--overwrite drops the oldest entries.
"""
TAKE_DETAILS = """
Each entry is a line: {"offset":7,"value":...} for JSON, {"offset":7,"text":"..."} for bytes, and
{"offset":7,"base64":"..."} for bytes that are no text; --format lines writes the values alone. What
was taken is out of the ring when it is written: if it cannot be, the message says what was lost.
"""
REMOVE_DETAILS = """
On a terminal it asks first. If the store with the entries is gone, leave --buffers out: entries in
a store that is not named stay there, and nobody looks at them again.
"""

_TOGETHER_MAX = 1_000  # entries that go in under one lock


def _create(options: argparse.Namespace, console: Console) -> None:
    try:
        open_ring(options).close()
        is_new = False
    except tm.NotAQueue:
        is_new = True
    with open_ring(
        options, capacity=options.capacity, slots_per_record=options.slots_per_record
    ) as ring:
        info = ring.info()
    made = "made" if is_new else "there already:"
    words = (
        f"{made} ring {ring.name} for {counted(info.capacity, 'entry', 'entries')} "
        f"of at most {info.entry_bytes_max:,} bytes"
    )
    console.result(words, {"ring": ring.name, "created": is_new, **info_document(info)})


def _put(options: argparse.Namespace, console: Console) -> None:
    done = 0
    first: int | None = None
    with open_ring(options) as ring, Interrupts() as interrupts:
        info = ring.info()
        most = min(_TOGETHER_MAX, info.overwrites_max if options.overwrite else info.capacity)
        try:
            for values in _values(options, most):
                with interrupts.held():
                    offset = ring.enqueue_many(
                        values,
                        overwrite=options.overwrite,
                        wait_s=options.wait_s,
                        operation_id=options.operation_id,
                    )
                    first = offset if first is None else first
                    done += len(values)
        except (tm.TidemillError, KeyboardInterrupt) as error:
            if isinstance(error, tm.QueueFull):
                error.add_note("in a shell: --overwrite; --wait-s waits for room")
            if not done:
                raise
            words = f"{counted(done, 'entry', 'entries')} went in before that"
            raise Stopped(error, words, {"put": done, "first": first}) from error
    words = f"put in {counted(done, 'entry', 'entries')}"
    if first is not None:
        words += f", from offset {first:,} on"
    console.result(words, {"put": done, "first": first})


def _values(options: argparse.Namespace, most: int) -> Iterator[list[object]]:
    form = options.format or "lines"
    if options.value is not None and options.input is not None:
        raise tm.InvalidInput("a value and --from exclude each other")
    if options.value is not None:
        yield [parsed(options.value.encode(errors="surrogateescape"), form)]
        return
    with open_lines(options.input or "-") as batches:
        for lines in batches:
            for start in range(0, len(lines), most):
                yield [parsed(line, form) for line in lines[start : start + most]]


def _take(options: argparse.Namespace, console: Console) -> None:
    check_open(1)  # Before anything is taken.
    with open_ring(options) as ring, Interrupts() as interrupts:
        end = _end(ring, options.group)
        with interrupts.held():
            taken = end.dequeue_many(
                options.count, wait_s=options.wait_s, operation_id=options.operation_id
            )
            try:
                write_entries(taken, options.format or "ndjson", console)
            except (tm.TidemillError, BrokenPipeError) as error:
                last = taken[-1].offset
                words = f"entries {taken[0].offset} to {last} were taken, and not all are written"
                document = {"first": taken[0].offset, "last": last}
                raise Stopped(error, words, document) from error


def _end(ring: tm.Ring, group: str | None) -> RingEnd:
    """The ring itself, or a group of it that is there: one by mistake would fill the ring."""
    if group is None:
        return ring
    groups = ring.info().groups
    if group not in groups:
        known = ", ".join(groups)
        raise NotFound(
            f"ring {ring.name} has no group {group!r}; there are: {known}. "
            "`tidemill ring group` makes one"
        )
    return ring.group(group)


def _get(options: argparse.Namespace, console: Console) -> None:
    with open_ring(options) as ring:
        found = ring.get_many(options.offset, options.count)
        if not found:
            info = ring.info()
            there = f"it has {info.head:,} to {info.tail - 1:,}" if info.length else "it is empty"
            raise NotFound(f"ring {ring.name} has no entry at offset {options.offset:,}; {there}")
    write_entries(found, options.format or "ndjson", console)


def _info(options: argparse.Namespace, console: Console) -> None:
    with open_ring(options) as ring:
        info = ring.info()
    problems = problems_of(options)
    rows = [(name, f"{length:,}") for name, length in info.groups.items()]
    words = [
        f"ring {ring.name}: {info.length:,} of {info.capacity:,} entries, "
        f"offsets {info.head:,} to {info.tail:,}" + (", locked" if info.locked else ""),
        f"{info.records:,} records of {info.slots_per_record:,} entries, each of at most "
        f"{info.entry_bytes_max:,} bytes; {info.overwritten:,} overwritten",
        "",
        table(("group", "entries"), rows),
        *(f"\nwarning: {problem}" for problem in problems),
    ]
    console.result(
        "\n".join(words),
        {"ring": ring.name, **info_document(info), "problems": list(problems)},
    )


def _group(options: argparse.Namespace, console: Console) -> None:
    with open_ring(options) as ring:
        groups = ring.info().groups
        is_new = options.name not in groups
        if options.remove:
            group = _end(ring, options.name)
            left = counted(groups[options.name], "entry", "entries")
            console.confirm(
                lambda: f"Remove group {options.name}, which has {left} before it?",
                is_sure=options.yes,
            )
            if isinstance(group, tm.Group):
                group.remove()
            words = f"removed group {options.name}, which had {left} before it"
            console.result(words, {"group": options.name, "removed": True})
            return
        ring.group(options.name, start=options.start)
        length = ring.info().groups[options.name]
    made = "made" if is_new else "there already:"
    words = f"{made} group {options.name} with {counted(length, 'entry', 'entries')} before it"
    console.result(words, {"group": options.name, "created": is_new, "entries": length})


def _remove(options: argparse.Namespace, console: Console) -> None:
    console.confirm(lambda: _about_removal(options), is_sure=options.yes)
    tm.Ring.remove_at(options.queue, buffers=options.buffers)
    name = RecordAddress.parse(options.queue).name
    console.result(f"removed ring {name}", {"ring": name, "removed": True})


def _about_removal(options: argparse.Namespace) -> str:
    """What to ask before a ring goes; also one that cannot be opened."""
    try:
        with open_ring(options) as ring:
            left = counted(ring.info().length, "entry", "entries")
            return f"Remove ring {ring.name}, which has {left}?"
    except tm.GeometryMismatch as mismatch:
        return f"{mismatch}\nRemove the ring, and leave behind what is in other stores?"


def _add_buffers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--buffers", metavar="URL", help="the entries are in another store, at this address"
    )


def _add_entries(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("--format", type=OneOf(*FORMATS), metavar="FORMAT", help=what)
    _add_buffers(parser)


def _add_call(parser: argparse.ArgumentParser, waits_for: str) -> None:
    parser.add_argument(
        "--wait-s", type=seconds, metavar="SECONDS", help=f"wait so long for {waits_for}"
    )
    parser.add_argument(
        "--operation-id", metavar="ID", help="what to ask `ring.outcome` for, should it be in doubt"
    )


def _create_arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser)
    parser.add_argument(
        "--capacity", type=positive, required=True, metavar="N", help="entries that it holds"
    )
    parser.add_argument(
        "--slots-per-record",
        type=positive,
        metavar="N",
        help="entries of one record (default: 100); fewer allow larger entries",
    )
    _add_buffers(parser)


def _put_arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser, Positional("value", "one entry", convert=_value, is_required=False))
    parser.add_argument(
        "--from",
        dest="input",
        metavar="FILE",
        help="a line is an entry; '-' is standard input, the default",
    )
    parser.add_argument("--overwrite", action="store_true", help="drop the oldest of a full ring")
    _add_entries(parser, "of the values: lines (bytes; the default), or ndjson")
    _add_call(parser, "room")


def _value(text: str) -> str:
    if ring_address(text):
        raise argparse.ArgumentTypeError(f"{text!r} names a ring: give a value too, or --from -")
    return text


def _take_arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser, Positional("count", "at most so many", positive, False, 1))
    parser.add_argument("--group", metavar="NAME", help="for this group instead of the ring's own")
    _add_entries(parser, "of the output: ndjson (the default), or lines (the values alone)")
    _add_call(parser, "an entry")


def _get_arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser, Positional("offset", "of the entry", whole_number))
    parser.add_argument(
        "--count", type=positive, default=1, metavar="N", help="so many from there on"
    )
    _add_entries(parser, "of the output: ndjson (the default), or lines (the values alone)")


def _info_arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser)
    _add_buffers(parser)


def _group_arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser, Positional("name", "of the group"))
    parser.add_argument(
        "--start",
        type=OneOf("earliest", "latest"),
        default="earliest",
        metavar="WHERE",
        help="of a new group: the oldest entry (earliest; the default), or the next (latest)",
    )
    parser.add_argument("--remove", action="store_true", help="end it; on a terminal it asks")
    add_yes(parser)
    _add_buffers(parser)


def _remove_arguments(parser: argparse.ArgumentParser) -> None:
    add_ring(parser)
    add_yes(parser)
    _add_buffers(parser)


_URL = "redis://localhost/alerts"

COMMAND = Command(
    name="ring",
    summary="make a ring on Redis, MySQL, etcd or Aerospike, and put in and take out entries",
    children=(
        Command(
            name="create",
            summary="make a ring, unless it is there",
            examples=(f"tidemill ring create {_URL} --capacity 1000",),
            arguments=_create_arguments,
            run=_create,
        ),
        Command(
            name="put",
            summary="put entries in: a value, or the lines of a file or of standard input",
            details=PUT_DETAILS,
            examples=(
                f"tidemill ring put {_URL} 'disk is full'",
                f"tail -F app.log | tidemill ring put {_URL} --overwrite",
            ),
            arguments=_put_arguments,
            run=_put,
        ),
        Command(
            name="take",
            summary="take the oldest entries out",
            details=TAKE_DETAILS,
            examples=(
                f"tidemill ring take {_URL}",
                f"tidemill ring take {_URL} 100 --group audit --wait-s 30",
            ),
            arguments=_take_arguments,
            run=_take,
        ),
        Command(
            name="get",
            summary="print entries by their offset, and leave them in",
            examples=(f"tidemill ring get {_URL} 7 --count 10",),
            arguments=_get_arguments,
            run=_get,
        ),
        Command(
            name="info",
            summary="print how full a ring is, its groups, and what its store does not promise",
            examples=(f"tidemill ring info {_URL} --json",),
            arguments=_info_arguments,
            run=_info,
        ),
        Command(
            name="group",
            summary="make a group of a ring, or end one",
            examples=(
                f"tidemill ring group {_URL} audit --start latest",
                f"tidemill ring group {_URL} audit --remove --yes",
            ),
            arguments=_group_arguments,
            run=_group,
        ),
        Command(
            name="remove",
            summary="remove a ring with its entries, also one that cannot be opened any more",
            details=REMOVE_DETAILS,
            examples=(f"tidemill ring remove {_URL} --yes",),
            arguments=_remove_arguments,
            run=_remove,
        ),
        WATCH_COMMAND,
    ),
)
