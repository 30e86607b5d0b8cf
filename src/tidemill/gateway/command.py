"""What a command of the command line is, and the parser made of all of them."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn, TypeAlias

from tidemill.environment import is_set
from tidemill.gateway.console import Console, report, say
from tidemill.gateway.exit_status import USAGE
from tidemill.urls import without_password

JSON_VARIABLE = "TIDEMILL_JSON"
_NO_COMMAND = re.compile(r"argument COMMAND: invalid choice: '(.*)' \(choose", re.DOTALL)

Arguments: TypeAlias = Callable[[argparse.ArgumentParser], None]
Run: TypeAlias = Callable[[argparse.Namespace, Console], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command: how it is called, what it does, and lines that show it."""

    name: str
    summary: str  # one line, for the list of commands
    details: str = ""  # more, for its own help
    examples: tuple[str, ...] = ()
    arguments: Arguments | None = None  # adds its arguments to its parser
    run: Run | None = None
    children: tuple[Command, ...] = ()  # of a noun with verbs: `fork list`


class Parser(argparse.ArgumentParser):
    """Says what is wrong with the usage in JSON where JSON was asked for, and takes arguments by
    place behind options as well: `peek spool/ --json 5`.
    """

    commands: tuple[str, ...] = ()  # that it leads to

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        found, unknown = super().parse_known_args(args, namespace)
        # Before Python 3.13, an option ends the arguments that may be left out.
        if unknown and not any(map(_is_option, unknown)) and self._take(found, unknown):
            return found, []
        if unknown:
            # Said by the command that was called: the parser above it would show its own usage.
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return found, unknown

    def _take(self, found: argparse.Namespace, late: list[str]) -> bool:
        """Put arguments that came late behind those that came in time; False if none may."""
        if hasattr(found, "positionals"):
            found.late = late
            return True
        lists = [action for action in self._get_positional_actions() if action.nargs in ("*", "+")]
        for action in lists:
            setattr(found, action.dest, [*getattr(found, action.dest), *late])
        return bool(lists)

    def error(self, message: str) -> NoReturn:
        if (found := _NO_COMMAND.match(message)) is not None:
            like = "".join(get_close_matches(found[1], self.commands, 1))
            message = f"there is no command {found[1]!r}" + (f"; is it {like!r}?" if like else "")
        if wants_json(sys.argv[1:]):
            report(message, USAGE, is_json=True, data={"usage": self.format_usage().strip()})
        else:
            what = "lists the commands" if self.commands else "has examples"
            hint = f"'{self.prog} --help' {what}"
            say(f"{self.format_usage()}tidemill: {without_password(message)}\n{hint}")
        sys.exit(USAGE.number)


def _is_option(argument: str) -> bool:
    """Whether it is one, and neither '-' nor a number below 0."""
    return argument.startswith("-") and not argument[1:2].isdigit() and argument != "-"


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether JSON was asked for, also where the arguments make no sense otherwise."""
    return "--json" in arguments or is_set(JSON_VARIABLE)


def make_parser(description: str, version: str, commands: Sequence[Command]) -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog="tidemill",
        description=description,
        epilog="'tidemill COMMAND --help' explains a command, with examples.",
    )
    parser.add_argument("--version", action="version", version=version)
    _add_common(parser, is_root=True)
    _add_children(parser, commands)
    parser.set_defaults(root=parser)
    return parser


def _add_children(parser: Parser, commands: Sequence[Command]) -> None:
    parser.commands = tuple(command.name for command in commands)
    children = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", required=True, parser_class=Parser
    )
    for command in commands:
        child = children.add_parser(
            command.name,
            help=command.summary,
            description=_description(command),
            epilog=_examples(command),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if command.arguments is not None:
            command.arguments(child)
        _add_common(child, is_root=False)
        if command.children:
            _add_children(child, command.children)
        else:
            child.set_defaults(run=command.run, parser=child)


def _add_common(parser: argparse.ArgumentParser, *, is_root: bool) -> None:
    """Flags that may stand before or after the name of a command; the nearest counts."""
    parser.add_argument(
        "--json",
        action="store_true",
        default=is_set(JSON_VARIABLE) if is_root else argparse.SUPPRESS,
        help="results and errors as JSON (TIDEMILL_JSON=1)",
    )
    parser.add_argument(
        "--no-progress",
        action="store_true",
        default=is_set("TIDEMILL_NO_PROGRESS") if is_root else argparse.SUPPRESS,
        help="no progress bar on the terminal (TIDEMILL_NO_PROGRESS=1)",
    )


def _description(command: Command) -> str:
    summary = command.summary[0].upper() + command.summary[1:] + "."
    return f"{summary}\n\n{command.details.strip()}" if command.details else summary


def _examples(command: Command) -> str:
    examples = command.examples or tuple(
        example for child in command.children for example in child.examples
    )
    return "examples:\n" + "\n".join(f"  {example}" for example in examples)
