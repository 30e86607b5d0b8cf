"""Certificates that vouch for themselves, for servers with TLS."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import NamedTuple


class Certificate(NamedTuple):
    """A certificate for localhost, and its key."""

    path: Path
    key_path: Path


def certificate(folder: Path, name: str) -> Certificate:
    """Make one in a folder."""
    made = Certificate(folder / f"{name}.pem", folder / f"{name}-key.pem")
    run = f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext".split()
    run += ["subjectAltName=DNS:localhost", "-out", str(made.path), "-keyout", str(made.key_path)]
    subprocess.run(run, check=True, capture_output=True)
    return made
