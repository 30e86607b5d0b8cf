"""Certificates for nodes of tests: a real authority, real files."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

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

    def issue_nameless(self) -> tm.Tls:
        """The files of somebody who has no name, which no library for tests would sign."""
        root = x509.load_pem_x509_certificate(self._ca.cert_pem.bytes())
        pem = self._ca.private_key_pem.bytes()
        signer = serialization.load_pem_private_key(pem, password=None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(root.subject)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(root.not_valid_before_utc)
            .not_valid_after(root.not_valid_before_utc + timedelta(days=36_500))
            .sign(signer, hashes.SHA256())
        )
        certificate, file = self._folder / "nameless.pem", self._folder / "nameless.key"
        certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.TraditionalOpenSSL,
                serialization.NoEncryption(),
            )
        )
        return tm.Tls(certificate=certificate, key=file, authority=self._root)
