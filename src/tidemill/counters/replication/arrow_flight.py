"""Arrow Flight, which not every build of pyarrow has."""

from __future__ import annotations

from types import ModuleType

from tidemill.errors import MissingExtra


def load_flight() -> ModuleType:
    """The module, which takes a tenth of a second to import the first time.

    >>> load_flight().__name__
    'pyarrow.flight'
    """
    try:
        from pyarrow import flight  # noqa: PLC0415
    except ImportError as cause:
        raise MissingExtra(
            "nodes of counters talk by Arrow Flight, which this build of pyarrow lacks: install "
            "pyarrow from PyPI (pip install --force-reinstall pyarrow), or the whole of it from "
            "conda-forge"
        ) from cause
    found: ModuleType = flight
    return found
