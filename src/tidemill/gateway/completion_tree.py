"""What can be completed: the commands and options of a parser as a tree of plain data."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

# What an argument without choices of its own is completed with, by its name.
_FILES = frozenset({"to", "source", "schema", "picture"})
_FOLDERS = frozenset({"queue", "target", "folder"})


@dataclass(frozen=True, slots=True)
class Flag:
    """An option."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]
    takes_file: bool


@dataclass(frozen=True, slots=True)
class Node:
    """A command: either it has children, or arguments."""

    name: str
    help: str
    flags: tuple[Flag, ...]
    children: tuple[Node, ...]
    choices: tuple[str, ...]  # of its first argument by place
    takes_folder: bool


def tree_of(parser: argparse.ArgumentParser, name: str = "tidemill", summary: str = "") -> Node:
    """The tree of a parser and everything below it.

    >>> parser = argparse.ArgumentParser()
    >>> added = parser.add_argument("--to", help="a file")
    >>> [flag.names for flag in tree_of(parser).flags]
    [('-h', '--help'), ('--to',)]
    """
    flags = []
    children: list[Node] = []
    choices: tuple[str, ...] = ()
    takes_folder = False
    # argparse has no public way to ask what was added; tools that generate completion use this one.
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            children = [
                tree_of(child, child_name, helps.get(child_name, ""))
                for child_name, child in action.choices.items()
            ]
        elif action.option_strings:
            flags.append(_flag(action))
        else:
            choices = choices or _choices(action)
            takes_folder = takes_folder or action.dest in _FOLDERS
    return Node(name, summary, tuple(flags), tuple(children), choices, takes_folder)


def _flag(action: argparse.Action) -> Flag:
    return Flag(
        names=tuple(action.option_strings),
        help=(action.help or "").replace("%(default)s", str(action.default)),
        takes_value=action.nargs != 0,
        choices=_choices(action),
        takes_file=action.dest in _FILES | _FOLDERS,
    )


def _choices(action: argparse.Action) -> tuple[str, ...]:
    found = action.choices or getattr(action.type, "choices", None) or ()
    return tuple(str(choice) for choice in found)
