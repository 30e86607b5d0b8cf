"""Switches that the environment sets."""

from __future__ import annotations

import os


def is_set(variable: str) -> bool:
    """Whether an environment variable says yes.

    >>> is_set("TIDEMILL_NO_SUCH_VARIABLE")
    False
    """
    return os.environ.get(variable, "").strip().lower() not in ("", "0", "false", "no", "off")
