"""Whole numbers as callers give them: Python's own, or those of NumPy and others."""

from __future__ import annotations

import operator

import numpy as np


def whole_number(value: object) -> int | None:
    """The value as an int; None if it is no whole number, or a truth value.

    >>> whole_number(np.int64(3)), whole_number(True), whole_number(3.0)
    (3, None, None)
    """
    if isinstance(value, (bool, np.bool_)):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except Exception:  # noqa: BLE001 (whatever it is, it is no number)
        return None
