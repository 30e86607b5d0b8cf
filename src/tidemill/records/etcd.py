"""Records on etcd: each is a key, and its generation is the revision that last changed it.

A write is a transaction that compares this revision. Revisions only grow, for all keys together, so
that none comes twice. etcd has no clock that could be asked, so that records have no age.

Any member of a cluster answers as all of them would; when one does not answer, the next is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemill.limits import ETCD_RECORD_BYTES_MAX, MIB
from tidemill.records.address import RecordAddress
from tidemill.records.bounds import check_record_name, check_record_size, chunked
from tidemill.records.etcd_link import RECORDS_MAX, EtcdLink, packed, unpacked
from tidemill.records.links import Links, Lost
from tidemill.records.store import ManyAtOnce, Record, Write

_PREFIX = "tidemill/"
_CHUNK_BYTES = MIB
_TXN = "/v3/kv/txn"

T = TypeVar("T")


class EtcdStore(ManyAtOnce):
    """The records of one etcd cluster, in the keys that start with `tidemill/`."""

    record_bytes_max = ETCD_RECORD_BYTES_MAX

    def __init__(self, address: RecordAddress) -> None:
        self.place = address.place
        self._address = address
        self._member = 0  # that is asked next
        self._links: Links[EtcdLink] = Links(self.place, self._connect, address.timeout_s)

    def get_many(self, names: Sequence[str]) -> list[Record | None]:
        """These records, with one round trip for many of them."""
        asked = [{"request_range": {"key": _key(name)}} for name in names]
        found: list[Record | None] = []
        for chunk in chunked(asked, [0] * len(asked), _CHUNK_BYTES, RECORDS_MAX):
            found += self._read({"success": chunk}, _records_of(len(chunk)))
        return found

    def write_many(self, writes: Sequence[Write]) -> list[int | None]:
        """Each of these writes, with one round trip for many of them."""
        asked = [self._asked(write) for write in writes]
        sizes = [len(write.data) for write in writes]
        written: list[int | None] = []
        for chunk in chunked(asked, sizes, _CHUNK_BYTES, RECORDS_MAX):
            # One transaction within another for each: what one finds is nothing to the others.
            steps = [{"request_txn": one} for one in chunk]
            written += self._write({"success": steps}, _revisions_of(len(chunk)))
        return written

    def delete(self, name: str, generation: int) -> bool:
        """Delete a record if it has this generation; False if it has another, or is gone."""
        key = _key(name)
        asked = {
            "compare": [_unchanged(key, generation)],
            "success": [{"request_delete_range": {"key": key}}],
        }
        return self._write(asked, _was_done)

    def problems(self) -> tuple[str, ...]:
        """Nothing: what etcd confirms is on the disks of most members."""
        return ()

    def close(self) -> None:
        """Let go of connections; closing again does nothing."""
        self._links.close()

    def _asked(self, write: Write) -> dict[str, Any]:
        check_record_size(write.name, len(write.data), self.place, self.record_bytes_max)
        key = _key(write.name)
        return {
            "compare": [_unchanged(key, write.generation or 0)],
            "success": [{"request_put": {"key": key, "value": packed(write.data)}}],
        }

    def _read(self, asked: dict[str, Any], understand: Callable[[dict[str, Any]], T]) -> T:
        return self._links.read(
            lambda link, within_s: self._call(link, asked, within_s, understand)
        )

    def _write(self, asked: dict[str, Any], understand: Callable[[dict[str, Any]], T]) -> T:
        return self._links.write(
            lambda link, within_s: self._call(link, asked, within_s, understand)
        )

    def _call(
        self,
        link: EtcdLink,
        asked: dict[str, Any],
        within_s: float,
        understand: Callable[[dict[str, Any]], T],
    ) -> T:
        # A member that is silent shall not use up the time that the others would need.
        if len(self._address.hosts) > 1:
            within_s /= 2
        try:
            return link.call(_TXN, asked, within_s, understand)
        except Lost:
            self._turn_from(link.member)
            raise

    def _connect(self, within_s: float) -> EtcdLink:
        """A link to the member that last answered, or else to one that does now."""
        members = len(self._address.hosts)
        for tried in range(1, members + 1):
            member = self._member
            try:
                return EtcdLink(self._address, member, within_s / members)
            except Lost:
                self._turn_from(member)
                if tried == members:
                    raise
        raise AssertionError("no URL is without a host")

    def _turn_from(self, member: int) -> None:
        """Ask another member next. Two threads that turn at once turn from the same one."""
        if self._member == member:
            self._member = (member + 1) % len(self._address.hosts)


def _key(name: str) -> str:
    return packed((_PREFIX + check_record_name(name)).encode())


def _unchanged(key: str, generation: int) -> dict[str, Any]:
    """That a key was last changed by this revision; by none, if it is 0."""
    return {"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": str(generation)}


def _records_of(count: int) -> Callable[[dict[str, Any]], list[Record | None]]:
    """What was found, of an answer to so many questions."""
    return lambda said: [_record(one["response_range"]) for one in _responses(said, count)]


def _revisions_of(count: int) -> Callable[[dict[str, Any]], list[int | None]]:
    """What the records have now that were written, of an answer about so many."""

    def understand(said: dict[str, Any]) -> list[int | None]:
        revision = int(said["header"]["revision"])
        done = [_is_done(one["response_txn"]) for one in _responses(said, count)]
        return [revision if is_done else None for is_done in done]

    return understand


def _responses(said: dict[str, Any], count: int) -> list[Any]:
    found = said["responses"]
    if not isinstance(found, list) or len(found) != count:
        raise ValueError("it is not to what was asked")
    return found


def _was_done(said: dict[str, Any]) -> bool:
    """The same of a whole answer: one that says nothing at all is none."""
    if "header" not in said:
        raise ValueError("it has no header")
    return _is_done(said)


def _is_done(said: dict[str, Any]) -> bool:
    """Whether the comparison of a transaction held; etcd leaves out what is false."""
    return {True: True, False: False}[said.get("succeeded", False)]


def _record(answer: dict[str, Any]) -> Record | None:
    for found in answer.get("kvs", ()):
        return Record(unpacked(found.get("value", "")), int(found["mod_revision"]), None)
    return None
