"""Where encoded frames wait until all of them are written. Pure.

They lie one behind the other in a few large blocks, which the system gets back at once when the
last frame is gone. Each in memory of its own, between what comes and goes meanwhile, they would
take half as much again, and leave holes behind.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from tidemill.batch import EncodedBody

_BLOCK_BYTES = 40 * 1024 * 1024  # above what allocators keep for themselves: 32 MiB


class Shelf:
    """Keeps bodies in large blocks; what was never written to takes no memory."""

    def __init__(self) -> None:
        self._free = np.empty(0, np.uint8)  # what is left of the block in use

    def keep(self, body: EncodedBody) -> EncodedBody:
        """The same body, in a block."""
        length = body.body_bytes
        if length > _BLOCK_BYTES // 8:
            return body
        if length > len(self._free):
            self._free = np.empty(_BLOCK_BYTES, np.uint8)
        place, self._free = self._free[:length], self._free[length:]
        place[:] = np.frombuffer(body.buffer, np.uint8)
        return body._replace(buffer=pa.py_buffer(place))
