"""What an open queue or log knows, as a hash: its whole object graph, down to the last attribute.

What it hands out follows from the disk and from this. Two that agree in both need not be read
twice, however differently their disks looked before they were recovered.

Nothing is left out by name, so that whatever is added to the product takes part by itself; what
cannot be told apart by its value (a new kind of handle, say) is an error and not a blank.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
from types import FunctionType
from typing import Any
from weakref import WeakSet

import xxhash

from tests.faults.memory_fs import MemoryFile, MemoryFileSystem

_LOCKS = (type(threading.Lock()), type(threading.RLock()), threading.Condition)


class _Walk(pickle.Pickler):
    """Pickles everything there is, for nobody to load."""

    def reducer_override(self, found: Any) -> Any:
        match found:
            case MemoryFile():
                # With its content, for the name may be gone, or be another file's.
                inode = found._inode
                return str, (found._path, inode.size, xxhash.xxh3_128_digest(inode.data))
            case MemoryFileSystem():
                return str, (found.boot,)  # Whoever asks hashes its files.
            case FunctionType():
                cells = [cell.cell_contents for cell in found.__closure__ or ()]
                return str, (found.__qualname__, cells, found.__defaults__)
            case WeakSet():
                return str, (list(found),)
            case struct.Struct():
                return str, (found.format,)
            case _ if isinstance(found, _LOCKS):
                return str, ("lock",)
        return NotImplemented


def fingerprint(root: object) -> bytes:
    """A hash of all that can be reached from an object, but for the content of file systems."""
    graph = io.BytesIO()
    _Walk(graph, pickle.HIGHEST_PROTOCOL).dump(root)
    return xxhash.xxh3_128_digest(graph.getbuffer())
