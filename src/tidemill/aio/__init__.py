"""The asyncio twins of everything that waits.

>>> import asyncio, tempfile
>>> import tidemill as tm
>>> async def main():
...     async with tm.aio.PriorityQueue(tempfile.mkdtemp()) as queue:
...         await queue.push([(3, b"c"), (1, b"a")])
...         return (await queue.pop(2)).rows()
>>> asyncio.run(main())
[(1, b'a'), (3, b'c')]
"""

from tidemill.aio.consumer import Consumer
from tidemill.aio.counters import Counters
from tidemill.aio.fork import Fork
from tidemill.aio.group import Group
from tidemill.aio.log import Log
from tidemill.aio.priority_queue import PriorityQueue
from tidemill.aio.publisher import Publisher
from tidemill.aio.read import Read
from tidemill.aio.receiver import Receiver
from tidemill.aio.ring import Ring

__all__ = [
    "Consumer",
    "Counters",
    "Fork",
    "Group",
    "Log",
    "PriorityQueue",
    "Publisher",
    "Read",
    "Receiver",
    "Ring",
]
