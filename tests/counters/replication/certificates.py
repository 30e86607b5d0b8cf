"""Certificates for nodes of tests: a real authority, real files."""

from __future__ import annotations

from pathlib import Path

import trustme

import tidemill as tm


class Authority:
    """Signs certificates; two of them do not know each other."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._ca = trustme.CA()
        self._root = folder / "ca.pem"
        self._ca.cert_pem.write_to_path(self._root)

    def issue(self, node: str) -> tm.Tls:
        """The files of a node on this machine."""
        made = self._ca.issue_cert(node, "127.0.0.1", "localhost")
        certificate, key = self._folder / f"{node}.pem", self._folder / f"{node}.key"
        made.cert_chain_pems[0].write_to_path(certificate)
        made.private_key_pem.write_to_path(key)
        return tm.Tls(certificate=certificate, key=key, authority=self._root)
