"""The certificates that a command is given."""

from __future__ import annotations

import argparse
import os

import tidemill as tm

_FILES = {
    "certificate": "this node's or client's own certificate",
    "key": "the private key that belongs to it",
    "authority": "the certificate of whoever signs for nodes",
}


def add_tls(parser: argparse.ArgumentParser) -> None:
    for name, words in _FILES.items():
        variable = f"TIDEMILL_{name.upper()}"
        parser.add_argument(
            f"--{name}",
            default=os.environ.get(variable) or None,
            metavar="FILE",
            help=f"{words}, in PEM ({variable})",
        )


def tls_of(options: argparse.Namespace) -> tm.Tls | None:
    """All three files, or none."""
    given = {name: getattr(options, name) for name in _FILES}
    missing = [f"--{name}" for name, file in given.items() if file is None]
    if len(missing) == len(_FILES):
        return None
    if missing:
        raise tm.InvalidInput(f"certificates come together: {', '.join(missing)} is missing")
    return tm.Tls(**given)
