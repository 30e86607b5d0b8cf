"""Whose a certificate is: the name by which other nodes will know who shows it.

Python decodes no certificate but that of the other end of a connection. So one is made, in memory
and for a moment, whose one end shows the certificate to the other.
"""

from __future__ import annotations

import os
import ssl
from typing import Any

from tidemill.errors import InvalidInput, NoAccess

# Whether keys are long enough, and who has signed, is for the ends of real connections to judge.
_CIPHERS = "DEFAULT:@SECLEVEL=0"
_FLIGHTS_MAX = 8  # of messages to and fro; a handshake takes three


def check_name_of(
    node: str, *, certificate: str | os.PathLike[str], key: str | os.PathLike[str]
) -> None:
    """Raise `NoAccess` if the first name in a certificate is not the id of the node."""
    try:
        shown = _shown(certificate, key)
    except ssl.SSLError as error:
        raise InvalidInput(
            f"{certificate} cannot be shown to other nodes: {error}; do certificate and key belong "
            "together?"
        ) from error
    name = first_name(shown)
    if name != node:
        raise NoAccess(
            f"{certificate} speaks for {name or 'nobody'}, not for {node}: "
            "the first name in a certificate is the id of its node"
        )


def first_name(shown: dict[str, Any]) -> str:
    """The first alternative name of a decoded certificate, else its common name: as gRPC has it.

    >>> first_name({"subject": ((("commonName", "node-1"),),)})
    'node-1'
    """
    alternatives = shown.get("subjectAltName", ())
    if alternatives:
        return str(alternatives[0][1])
    pairs = [pair for pairs in shown.get("subject", ()) for pair in pairs]
    return next((str(name) for kind, name in pairs if kind == "commonName"), "")


def _shown(certificate: str | os.PathLike[str], key: str | os.PathLike[str]) -> dict[str, Any]:
    ours = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    theirs.check_hostname, theirs.verify_mode = False, ssl.CERT_NONE
    for context in (ours, theirs):
        context.set_ciphers(_CIPHERS)
    # A key that is encrypted is of no use to gRPC either, and must not ask the terminal.
    ours.load_cert_chain(certificate, key, password=lambda: b"")
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (theirs.wrap_bio(back, there), ours.wrap_bio(there, back, server_side=True))
    for _ in range(_FLIGHTS_MAX):
        are_done = [_goes_on(end) for end in ends]
        if all(are_done):
            break
    # Whoever demands no certificate is not told of one. It is demanded late, since one that is not
    # valid yet, or that an authority of others signed, has a name as well.
    theirs.verify_mode = ssl.CERT_REQUIRED
    return ends[0].getpeercert() or {}


def _goes_on(end: ssl.SSLObject) -> bool:
    """Whether this end has all that it wants of the other."""
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True
