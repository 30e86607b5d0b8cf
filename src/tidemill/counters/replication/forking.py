"""Objects of gRPC that are not to be ended, as that would wait: be it by hand, by the collector of
garbage, or at the end of the process. They are kept as they are, and their endings forgotten.

What `os.fork()` leaves in a child is of that kind, because the threads of it are gone.
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


def leave(thing: Any) -> None:
    """Never end this one, neither when nobody uses it any more nor at the end of the process."""
    # One reference more than anybody will ever give back.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    # Arrow registers an ending for the exit of the process, and has no way to take it back.
    registry: dict[Any, Any] = getattr(weakref.finalize, "_registry", {})
    for ending, what in list(registry.items()):
        if what.weakref() is thing:
            ending.detach()


def _leave_all() -> None:
    for thing in list(_alive):
        leave(thing)


os.register_at_fork(after_in_child=_leave_all)
