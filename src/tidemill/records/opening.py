"""From the address of a ring to the store where its records are, and its name there; `address` says
how an address is written.
"""

from __future__ import annotations

from tidemill.records.address import RecordAddress
from tidemill.records.memory import MemoryStore
from tidemill.records.store import RecordStore

_shared = MemoryStore()


def open_records(url: str) -> tuple[RecordStore, str]:
    """The store at an address, and the name of the ring in it.

    >>> store, name = open_records("memory:alerts")
    >>> store.place, name
    ('memory', 'alerts')
    """
    address = RecordAddress.parse(url)
    return _open(address), address.name


def _open(address: RecordAddress) -> RecordStore:
    # Each is imported by those who use it; some need a package that others do without.
    if address.scheme in ("redis", "rediss"):
        from tidemill.records.redis import RedisStore  # noqa: PLC0415

        return RedisStore(address)
    if address.scheme == "mysql":
        from tidemill.records.mysql import MySQLStore  # noqa: PLC0415

        return MySQLStore(address)
    if address.scheme in ("etcd", "etcds"):
        from tidemill.records.etcd import EtcdStore  # noqa: PLC0415

        return EtcdStore(address)
    if address.scheme == "aerospike":
        from tidemill.records.aerospike import AerospikeStore  # noqa: PLC0415

        return AerospikeStore(address)
    return _shared
