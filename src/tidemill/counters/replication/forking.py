"""What `os.fork()` leaves in a child of gRPC: objects whose threads are gone.

Ending them there would wait for those threads for ever, be it by hand, by the collector of garbage,
or at the end of the child. So a child keeps them as they are, and forgets that they want an ending.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def outlives_fork(thing: Any) -> None:
    """Never end this server or client in a child of this process."""
    _alive.add(thing)


def _keep_for_good() -> None:
    for thing in list(_alive):
        # One reference more than anybody will ever give back.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    # Arrow registers an ending for the exit of the process, and has no way to take it back.
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    for ending, what in list(registry.items()):
        if type(getattr(what.func, "__self__", None)).__name__ == "_FlightServerFinalizer":
            ending.detach()


os.register_at_fork(after_in_child=_keep_for_good)
