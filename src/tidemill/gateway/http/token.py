"""The secret that opens a service, sent in a header of each request."""

from __future__ import annotations

from tidemill.limits import TOKEN_BYTES_MIN

TOKEN_WORDS = f"a line of text of at least {TOKEN_BYTES_MIN} bytes"


def is_token(text: str) -> bool:
    """Whether a header can say it, from which blanks at the ends are cut off, and whether it is
    long enough. What is no text, as bytes of the environment may be, would raise errors that show
    all of it.

    >>> is_token("mill-wheel-stream"), is_token("mill\\nwheel\\nstream"), is_token("mill")
    (True, False, False)
    """
    is_line = text.isprintable() and text == text.strip()
    return is_line and len(text.encode()) >= TOKEN_BYTES_MIN
