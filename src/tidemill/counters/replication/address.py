"""Where a node listens, and where its peers do: `host:port`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from tidemill.errors import InvalidInput
from tidemill.shown import shown

_FORM = re.compile(r"(?:\[([0-9A-Fa-f:.%]+)\]|([A-Za-z0-9._-]{1,253})):([0-9]{1,5})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """A host and a port.

    >>> Address.of("127.0.0.1:7801").is_loopback, Address.of("[::1]:0").host
    (True, '::1')
    """

    host: str
    port: int  # 0, where one listens: any that is free

    @classmethod
    def of(cls, text: object) -> Address:
        """Parse `host:port`; an IPv6 address stands in brackets."""
        found = _FORM.fullmatch(text) if isinstance(text, str) else None
        if found is None or int(found[3]) > 65_535:
            raise InvalidInput(
                f"{shown(text)} is no address: write host:port, or [::1]:port for IPv6"
            )
        return cls(found[1] or found[2], int(found[3]))

    @property
    def is_loopback(self) -> bool:
        """Whether nobody but this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False  # A name, which may lead anywhere.

    def url(self, *, is_secure: bool) -> str:
        """The address as Arrow Flight wants it."""
        return f"grpc+{'tls' if is_secure else 'tcp'}://{self}"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
