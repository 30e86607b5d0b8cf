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
from collections.abc import Callable
from queue import SimpleQueue
from types import FunctionType
from typing import Any
from weakref import WeakSet

import xxhash

from tests.faults.memory_fs import MemoryFile, MemoryFileSystem


def _file(file: MemoryFile) -> tuple[object, ...]:
    # With its content, for the name may be gone, or be another file's.
    inode = file._inode
    return file._path, inode.size, xxhash.xxh3_128_digest(inode.data)


def _function(function: FunctionType) -> tuple[object, ...]:
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return function.__qualname__, cells, function.__defaults__


# What stands for things that pickle knows nothing of, by their exact type.
_STAND_INS: dict[type, Callable[[Any], tuple[object, ...]]] = {
    MemoryFile: _file,
    MemoryFileSystem: lambda fs: (fs.boot,),  # Whoever asks hashes its files.
    FunctionType: _function,
    WeakSet: lambda found: (list(found),),
    struct.Struct: lambda found: (found.format,),
    type(threading.Lock()): lambda _: ("lock",),
    type(threading.RLock()): lambda _: ("lock",),
    threading.Condition: lambda _: ("lock",),
    SimpleQueue: lambda waiting: ("line", waiting.qsize()),
}


class _Walk(pickle.Pickler):
    """Pickles everything there is, for nobody to load."""

    def reducer_override(self, found: Any) -> Any:
        stand_in = _STAND_INS.get(type(found))
        return NotImplemented if stand_in is None else (str, stand_in(found))


def fingerprint(root: object) -> bytes:
    """A hash of all that can be reached from an object, but for the content of file systems."""
    graph = io.BytesIO()
    _Walk(graph, pickle.HIGHEST_PROTOCOL).dump(root)
    return xxhash.xxh3_128_digest(graph.getbuffer())
