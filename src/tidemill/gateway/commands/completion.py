"""`tidemill completion`: a script that lets a shell complete commands and options."""

from __future__ import annotations

import argparse

from tidemill.environment import is_set
from tidemill.gateway.command import JSON_VARIABLE, Command
from tidemill.gateway.completion_script import SHELLS, script
from tidemill.gateway.completion_tree import tree_of
from tidemill.gateway.console import Console


def run(options: argparse.Namespace, console: Console) -> None:
    text = script(options.shell, tree_of(options.root))
    if is_set(JSON_VARIABLE):
        # Whoever sources this in such an environment wants the script all the same.
        console.line(text.rstrip("\n"))
        return
    console.result(text.rstrip("\n"), {"shell": options.shell, "script": text})


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish")


COMMAND = Command(
    name="completion",
    summary="print a script that completes commands and options in a shell",
    examples=(
        "source <(tidemill completion bash)",
        "tidemill completion zsh > ~/.zfunc/_tidemill",
        "tidemill completion fish > ~/.config/fish/completions/tidemill.fish",
    ),
    arguments=_arguments,
    run=run,
)
