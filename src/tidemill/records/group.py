"""A group: a consuming end of a ring, with a head of its own."""

from __future__ import annotations

from tidemill.records.protocol.groups import remove_group
from tidemill.records.ring_end import Core, RingEnd


class Group(RingEnd):
    """Consumers who share a head: each entry goes to one of them, and to every other group as well.

    Made by `ring.group(name)`. An entry stays in the ring until every group has taken it; a group
    that nobody reads fills the ring.

    >>> import tidemill as tm
    >>> ring = tm.Ring("memory:doc-group", capacity=10)
    >>> audit = ring.group("audit")
    >>> offset = ring.enqueue(b"one")
    >>> audit.dequeue().value, ring.dequeue().value
    (b'one', b'one')
    >>> audit.remove()
    """

    def __init__(self, core: Core, name: str, group_id: int) -> None:
        self._core = core
        self._name = name
        self._group_id = group_id

    @property
    def name(self) -> str:
        """The name of the group."""
        return self._name

    def remove(self) -> None:
        """End the group: nothing waits for it any more. The last one cannot be removed.

        >>> import tidemill as tm
        >>> ring = tm.Ring("memory:doc-group-remove", capacity=10)
        >>> ring.group("audit").remove()
        >>> list(ring.info().groups)
        ['default']
        """
        call, id = self._core.call()
        self._core.run(remove_group(self._core.memo, call, self._group_id), id)

    def __repr__(self) -> str:
        return f"<Group {self._name!r} of ring {self._core.memo.name!r}>"
