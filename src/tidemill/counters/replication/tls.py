"""The certificates by which nodes know each other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from tidemill.errors import InvalidInput
from tidemill.files.disk.storage import typed
from tidemill.limits import CERTIFICATE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM: who this node is, and who vouches for nodes.

    Every connection is then encrypted, and both ends show a certificate that `authority` signed.
    The first name in a node's certificate is its node id: the node opens under no other, and whom
    it calls believes no other. The names behind it are the hosts by which peers reach it.

    >>> import tidemill as tm
    >>> tls = tm.Tls(certificate="node-1.pem", key="node-1.key", authority="ca.pem")
    >>> tls.authority
    'ca.pem'
    """

    certificate: (
        str | os.PathLike[str]
    )  # of this node, and what stands between it and the authority
    key: str | os.PathLike[str]  # that belongs to the certificate; nobody else may read it
    authority: str | os.PathLike[str]  # whose signature makes a node one of ours

    def read(self) -> Credentials:
        """The contents of the files, or why they cannot be read."""
        return Credentials(
            _read(self.certificate, b"CERTIFICATE"),
            _read(self.key, b"PRIVATE KEY"),
            _read(self.authority, b"CERTIFICATE"),
        )

    def read_for(self, node: str) -> Credentials:
        """The same, for a node. Raises `NoAccess` if the certificate is that of another."""
        # Python takes some milliseconds to load what only nodes with certificates need.
        from tidemill.counters.replication.certificate import check_name_of  # noqa: PLC0415

        found = self.read()
        check_name_of(node, certificate=self.certificate, key=self.key)
        return found


@dataclass(frozen=True, slots=True, repr=False)
class Credentials:
    """What the files hold."""

    certificate: bytes
    key: bytes
    authority: bytes


def _read(file: str | os.PathLike[str], kind: bytes) -> bytes:
    path = Path(file)
    try:
        with path.open("rb") as opened:
            text = opened.read(CERTIFICATE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise InvalidInput(f"there is no file {path}; it should hold a {_words(kind)}") from None
    except OSError as error:
        raise typed(error, "reading", path) from error
    if len(text) > CERTIFICATE_BYTES_MAX or kind + b"-----" not in text:
        raise InvalidInput(f"{path} holds no {_words(kind)} in PEM")
    return text


def _words(kind: bytes) -> str:
    return kind.decode().lower()
