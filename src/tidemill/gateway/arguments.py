"""Arguments that several commands share, and the environment variables behind them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NamedTuple

from tidemill.errors import InvalidInput
from tidemill.files.state.bucket import Shift, Width
from tidemill.limits import AGE_S_MAX, INT64_MAX, INT64_MIN, INTERVAL_S_MAX

QUEUE_VARIABLE = "TIDEMILL_QUEUE"
LOG_VARIABLE = "TIDEMILL_LOG"
RING_VARIABLE = "TIDEMILL_RING"
COUNTERS_VARIABLE = "TIDEMILL_COUNTERS"

FORMATS = ("ndjson", "csv", "parquet", "lines")
BINARY = ("utf8", "base64")
SYNC_MODES = ("full", "data", "index", "none")

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(s|m|h|d)", re.ASCII)
_NODE = re.compile(r"[^/]+:[0-9]{1,5}", re.ASCII)
_SIZE = re.compile(
    r"([0-9]{1,18}(?:\.[0-9]{1,9})?) ?(?:([KMGTP])(i)?)?B?", re.ASCII | re.IGNORECASE
)


class OneOf:
    """A value out of a few; unlike `choices` of argparse it also checks what the environment says.

    >>> OneOf("csv", "parquet")("csv")
    'csv'
    """

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, text: str) -> str:
        if text not in self.choices:
            raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(self.choices)}")
        return text


class Positional(NamedTuple):
    """An argument by place, after the folder."""

    name: str
    help: str
    convert: Callable[[str], Any] = str
    is_required: bool = True
    default: Any = None


def whole_number(text: str) -> int:
    """A count.

    >>> whole_number("1_000")
    1000
    """
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is below 0")
    return number


def positive(text: str) -> int:
    """A count of at least 1."""
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def key(text: str) -> int:
    """A key: any whole number of 64 bits."""
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"the key {text!r} is not a whole number") from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise argparse.ArgumentTypeError(f"the key {text} is over the range of int64")
    return number


def key_range(text: str) -> tuple[int, int]:
    """A range of keys, both ends included; either may be left out.

    >>> key_range("0:100"), key_range(":-1")[1], key_range("7")
    ((0, 100), -1, (7, 7))
    """
    low, colon, high = text.partition(":")
    if not colon:
        return key(low), key(low)
    found = (key(low) if low else INT64_MIN, key(high) if high else INT64_MAX)
    if found[1] < found[0]:
        raise argparse.ArgumentTypeError(f"{text} is empty: the lower key comes first")
    return found


def seconds(text: str) -> float:
    """A time to wait."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0 on")
    return number


def duration(text: str) -> timedelta:
    """A length of time, from a number and its unit.

    >>> duration("30s"), duration("1.5h").total_seconds()
    (datetime.timedelta(seconds=30), 5400.0)
    """
    found = _DURATION.fullmatch(text)
    if found is None or float(found[1]) * _SECONDS[found[2]] > AGE_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration such as 30s, 5m, 12h or 7d")
    return timedelta(seconds=float(found[1]) * _SECONDS[found[2]])


def interval(text: str) -> timedelta:
    """A length of time that a command waits, as long as the system can.

    >>> interval("90s")
    datetime.timedelta(seconds=90)
    """
    found = duration(text)
    if found.total_seconds() > INTERVAL_S_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is over {INTERVAL_S_MAX // 86_400}d")
    return found


def size(text: str) -> int:
    """A number of bytes, with a unit or without.

    >>> size("1000"), size("1.5GB"), size("2MiB")
    (1000, 1500000000, 2097152)
    """
    found = _SIZE.fullmatch(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 500MB, 10GiB or 2TB")
    base = 1_024 if found[3] else 1_000
    number = float(found[1]) if "." in found[1] else int(found[1])
    return int(number * base ** "KMGTP".index(found[2].upper()) * base if found[2] else number)


def bucket(text: str) -> Shift | Width:
    """A bucket function as a folder records it.

    >>> bucket("width:100")
    Width(width=100)
    """
    kind, _, number = text.partition(":")
    functions: dict[str, Callable[[int], Shift | Width]] = {"shift": Shift, "width": Width}
    try:
        return functions[kind](int(number))
    except (KeyError, ValueError):
        raise argparse.ArgumentTypeError(
            f"{text!r} is no bucket function: shift:BITS (0 to 63) or width:KEYS (1 or more)"
        ) from None


def names(text: str) -> list[str]:
    """Names with commas between them."""
    found = [name.strip() for name in text.split(",")]
    if not all(found):
        raise argparse.ArgumentTypeError(f"{text!r} holds an empty name")
    return found


def add_queue(parser: argparse.ArgumentParser, *others: Positional) -> None:
    """The folder of the queue, and whatever follows it.

    All are optional to argparse, because the folder may come from the environment instead;
    `fill_positionals` sorts out which is which.
    """
    parser.add_argument(
        "queue", nargs="?", metavar="QUEUE", help=f"the folder of the queue ({QUEUE_VARIABLE})"
    )
    _set_positionals(parser, "QUEUE", (QUEUE_VARIABLE,), others)


def add_queue_or_log(parser: argparse.ArgumentParser) -> None:
    """The same for a command that looks at whatever is there."""
    parser.add_argument(
        "queue",
        nargs="?",
        metavar="QUEUE",
        help=f"the folder of a queue, a log or an archive, or its URL ({QUEUE_VARIABLE}, else "
        f"{LOG_VARIABLE})",
    )
    _set_positionals(parser, "QUEUE", (QUEUE_VARIABLE, LOG_VARIABLE), ())


def add_log(parser: argparse.ArgumentParser, *others: Positional) -> None:
    """The same for a command on a log, which may be elsewhere than in a folder."""
    parser.add_argument(
        "queue",
        nargs="?",
        metavar="LOG",
        help=f"the folder of the log, or mysql:// or postgresql://user@host/database/name "
        f"({LOG_VARIABLE})",
    )
    _set_positionals(parser, "LOG", (LOG_VARIABLE,), others)


def add_ring(parser: argparse.ArgumentParser, *others: Positional) -> None:
    """The same for a command on a ring."""
    parser.add_argument(
        "queue",
        nargs="?",
        metavar="RING",
        help=f"the ring: redis://host/name, mysql://user@host/database/name, etcd://host/name, or "
        f"aerospike://host/namespace/name ({RING_VARIABLE})",
    )
    _set_positionals(parser, "RING", (RING_VARIABLE,), others)


def add_node(parser: argparse.ArgumentParser, *others: Positional) -> None:
    """The same for a command on the counters of a node that runs."""
    parser.add_argument(
        "queue", nargs="?", metavar="NODE", help=f"host:port of a node ({COUNTERS_VARIABLE})"
    )
    _set_positionals(parser, "NODE", (COUNTERS_VARIABLE,), others)
    parser.set_defaults(looks_like_home=_NODE.fullmatch)


def _set_positionals(
    parser: argparse.ArgumentParser,
    noun: str,
    variables: tuple[str, ...],
    others: tuple[Positional, ...],
) -> None:
    """Arguments by place, the first of which may come from the environment."""
    for other in others:
        parser.add_argument(other.name, nargs="?", metavar=other.name.upper(), help=other.help)
    parser.set_defaults(positionals=others, home=(noun, variables))
    shown = [o.name.upper() if o.is_required else f"[{o.name.upper()}]" for o in others]
    parser.usage = " ".join(["%(prog)s", noun, *shown, "[options]"])


def fill_positionals(options: argparse.Namespace) -> None:
    """Put the folder of the environment in front where it was left out, and convert the rest."""
    others: tuple[Positional, ...] | None = getattr(options, "positionals", None)
    if others is None:
        return
    parser: argparse.ArgumentParser = options.parser
    given = [options.queue, *(getattr(options, other.name) for other in others)]
    given += getattr(options, "late", [])
    values = [value for value in given if value is not None]
    noun, variables = options.home
    home = next(filter(None, map(os.environ.get, variables)), None)
    required = [other for other in others if other.is_required]
    looks_like_home = getattr(options, "looks_like_home", None)
    is_left_out = len(values) <= len(required) or _fits(values[0], others, required)
    if home and (is_left_out or (looks_like_home and not looks_like_home(values[0]))):
        values.insert(0, home)
    missing = [noun, *(other.name.upper() for other in required)][len(values) :]
    if missing:
        hint = f"; {' or '.join(variables)} may name the {noun.lower()}" if not home else ""
        parser.error(f"missing: {', '.join(missing)}{hint}")
    if not values[0]:
        parser.error(f"argument {noun}: it is empty, and no name of a folder")
    if len(values) > 1 + len(others):
        parser.error(f"too much: {values[-1]!r}")
    options.queue = values[0]
    for at, other in enumerate(others, start=1):
        try:
            value = other.convert(values[at]) if at < len(values) else other.default
        except (argparse.ArgumentTypeError, InvalidInput) as error:
            parser.error(f"argument {other.name.upper()}: {error}")
        setattr(options, other.name, value)


def _fits(value: str, others: tuple[Positional, ...], required: list[Positional]) -> bool:
    """Whether the first value is no folder, but the optional argument behind it."""
    if required or not others:
        return False
    try:
        others[0].convert(value)
    except (argparse.ArgumentTypeError, InvalidInput):
        return False
    return True


def add_sync(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sync",
        type=OneOf(*SYNC_MODES),
        default=os.environ.get("TIDEMILL_SYNC") or "full",
        metavar="MODE",
        help="what is on disk before the command ends: full, data (pushes), index (pops), none "
        "(TIDEMILL_SYNC; default: full)",
    )
    add_on_corruption(parser)
    add_lock_wait(parser)


def add_lock_wait(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--lock-wait-s",
        type=seconds,
        default=os.environ.get("TIDEMILL_LOCK_WAIT_S") or "5",
        metavar="SECONDS",
        help="wait so long for another process to let the folder go "
        "(TIDEMILL_LOCK_WAIT_S; default: 5)",
    )


def add_on_corruption(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--on-corruption",
        type=OneOf("abort", "continue"),
        default=os.environ.get("TIDEMILL_ON_CORRUPTION") or "abort",
        metavar="MODE",
        help="what to do about a damaged record: abort, or continue without it "
        "(TIDEMILL_ON_CORRUPTION; default: abort)",
    )


def add_fork(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fork",
        default=os.environ.get("TIDEMILL_FORK") or None,
        metavar="NAME",
        help="this fork instead of the queue's own end (TIDEMILL_FORK)",
    )


def add_looks(parser: argparse.ArgumentParser) -> None:
    """Of a command that looks again and again: how often, and how many times."""
    parser.add_argument(
        "--every",
        type=interval,
        default=timedelta(seconds=1),
        metavar="TIME",
        help="between two looks (default: 1s)",
    )
    parser.add_argument("--looks", type=positive, metavar="N", help="end after so many")


def add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask first")


def add_binary(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--binary",
        type=OneOf(*BINARY),
        default=os.environ.get("TIDEMILL_BINARY") or "utf8",
        metavar="ENCODING",
        help="how bytes are written in NDJSON and CSV: utf8 (refuses what is not), or base64 "
        "(TIDEMILL_BINARY; default: utf8)",
    )


def add_format(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument(
        "--format",
        type=OneOf(*FORMATS),
        metavar="FORMAT",
        help=f"{what}: ndjson, csv, parquet, or lines (the values alone)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    """Where rows go, and in which form."""
    parser.add_argument(
        "--to",
        default="-",
        metavar="FILE",
        help="write to this file; '-' is standard output, the default",
    )
    add_format(parser, "of the output; default: by the name of the file, ndjson for a pipe")
    parser.add_argument("--overwrite", action="store_true", help="replace the file if it is there")
    add_binary(parser)


def add_columns(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--columns", type=names, metavar="A,B", help="these columns only")
