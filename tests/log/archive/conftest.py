"""The shell, for commands on an archive."""

from tests.gateway.shell import shell

__all__ = ["shell"]
