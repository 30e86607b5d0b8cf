"""The command `tidemill`: parse the arguments, call, print, and turn errors into an exit status.

Each command has a module in `commands`; `exit_status` has the table of statuses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn

import tidemill as tm
from tidemill.files.disk.storage import typed
from tidemill.gateway.arguments import fill_positionals
from tidemill.gateway.command import Command, Parser, make_parser, wants_json
from tidemill.gateway.console import Console
from tidemill.gateway.exit_status import BROKEN_PIPE, DONE
from tidemill.gateway.interrupts import Interrupts
from tidemill.gateway.standard_streams import secure_streams

# In the order of the list that `--help` shows, with the place of each under `commands` where it is
# not that of its name.
COMMANDS = {
    "push": "",
    "pop": "",
    "peek": "",
    "scan": "",
    "len": "length.COMMAND",
    "delete": "",
    "clear": "",
    "fork": "",
    "shovel": "",
    "stats": "",
    "send": "",
    "receive": "",
    "consumers": "",
    "lag": "consumers.LAG_COMMAND",
    "trim": "",
    "restore": "",
    "archive": "",
    "ring": "",
    "compact": "",
    "journal": "",
    "doctor": "",
    "quarantine": "",
    "upgrade": "",
    "outbox": "",
    "counters": "",
    "pipeline": "",
    "merge": "",
    "replay": "",
    "profile": "",
    "bench": "",
    "demo": "demonstration.COMMAND",
    "completion": "",
}
_NEEDS_ALL = ("completion",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; without arguments, those of the process."""
    secure_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    console = Console(is_json=wants_json(given), shows_progress=True)
    try:
        options = parser(_called(given)).parse_args(_with_ranges(given))
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


def parser(command: str | None = None) -> Parser:
    """The parser of the whole command line; or of one command alone, for to load all of them takes
    longer than what most of them do.
    """
    names = COMMANDS if command is None or command in _NEEDS_ALL else (command,)
    return make_parser(
        "Durable queues and logs on Arrow batches, in a folder or on a server.",
        f"tidemill {tm.__version__}",
        [_loaded(name) for name in names],
    )


def _called(arguments: Sequence[str]) -> str | None:
    """The command that is meant; None if none is, or none that there is."""
    words = [argument for argument in arguments if not argument.startswith("-")]
    return words[0] if words and words[0] in COMMANDS else None


def _loaded(name: str) -> Command:
    module, _, command = (COMMANDS[name] or f"{name}.COMMAND").partition(".")
    found: Command = getattr(import_module(f"tidemill.gateway.commands.{module}"), command)
    return found


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
