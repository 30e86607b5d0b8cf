"""The command `tidemill`: parse the arguments, call, print, and turn errors into an exit status.

Each command has a module in `commands`; `exit_status` has the table of statuses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import tidemill as tm
from tidemill.files.storage import typed
from tidemill.gateway.arguments import fill_positionals
from tidemill.gateway.command import Parser, make_parser, wants_json
from tidemill.gateway.commands import (
    archive,
    bench,
    clear,
    compact,
    completion,
    consumers,
    counters,
    delete,
    demonstration,
    doctor,
    fork,
    journal,
    length,
    merge,
    outbox,
    peek,
    pipeline,
    pop,
    profile,
    push,
    quarantine,
    receive,
    replay,
    restore,
    ring,
    scan,
    send,
    shovel,
    stats,
    trim,
    upgrade,
)
from tidemill.gateway.console import Console
from tidemill.gateway.exit_status import BROKEN_PIPE, DONE
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.standard_streams import secure_streams

COMMANDS = (
    push.COMMAND,
    pop.COMMAND,
    peek.COMMAND,
    scan.COMMAND,
    length.COMMAND,
    delete.COMMAND,
    clear.COMMAND,
    fork.COMMAND,
    shovel.COMMAND,
    stats.COMMAND,
    send.COMMAND,
    receive.COMMAND,
    consumers.COMMAND,
    consumers.LAG_COMMAND,
    trim.COMMAND,
    restore.COMMAND,
    archive.COMMAND,
    ring.COMMAND,
    compact.COMMAND,
    journal.COMMAND,
    doctor.COMMAND,
    quarantine.COMMAND,
    upgrade.COMMAND,
    outbox.COMMAND,
    counters.COMMAND,
    pipeline.COMMAND,
    merge.COMMAND,
    replay.COMMAND,
    profile.COMMAND,
    bench.COMMAND,
    demonstration.COMMAND,
    completion.COMMAND,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; without arguments, those of the process."""
    secure_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(is_json=wants_json(given), shows_progress=True)
    try:
        options = parser().parse_args(_with_ranges(given))
        fill_positionals(options)
        if hasattr(options, "check"):
            options.check(options)
        console = Console(is_json=options.json, shows_progress=not options.no_progress)
        with console.logging(), Interrupts():
            options.run(options, console)
        console.flush()
    except BrokenPipeError:
        # What is still buffered has no reader; without this Python would complain at its exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE.number
    except (tm.TidemillError, KeyboardInterrupt) as error:
        return console.fail(error).number
    except OSError as error:
        return console.fail(typed(error, "using", Path(error.filename or "a file"))).number
    except Exception as error:  # noqa: BLE001  The last resort, which reports it as ours.
        return console.fail_unforeseen(error).number
    return DONE.number


def run() -> NoReturn:
    """Run one command as a process, and end it.

    It ends without Python's own end, which aborts while a thread of Arrow still reads ahead in
    standard input, and waits for as long as that says nothing. All that is to last is closed.
    """
    status = main()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):  # The status tells already that nobody could be told.
                stream.flush()
    os._exit(status)


def parser() -> Parser:
    """The parser of the whole command line."""
    return make_parser(
        "Durable queues and logs on Arrow batches, in a folder or on a server.",
        f"tidemill {tm.__version__}",
        COMMANDS,
    )


def _with_ranges(arguments: list[str]) -> list[str]:
    """`--keys -5:5` as `--keys=-5:5`: argparse takes what starts with a dash for an option."""
    joined: list[str] = []
    for argument in arguments:
        if joined and joined[-1] in ("--keys", "--key-max") and argument.startswith("-"):
            joined[-1] += f"={argument}"
        else:
            joined.append(argument)
    return joined


if __name__ == "__main__":
    run()
