"""What is said where the extra for HTTP is not installed."""

from __future__ import annotations

from tidemill.errors import MissingExtra


def missing_http() -> MissingExtra:
    """The error that names the extra.

    >>> str(missing_http())
    "HTTP needs starlette and uvicorn: pip install 'tidemill[http]'"
    """
    return MissingExtra("HTTP needs starlette and uvicorn: pip install 'tidemill[http]'")
