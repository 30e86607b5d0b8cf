"""The shell that the tests of the command line share."""

from tests.gateway.shell import shell

__all__ = ["shell"]
