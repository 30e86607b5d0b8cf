"""Records that are atomic one at a time, on any store that has them, and the ring on top.

ring               the public face, with `group`; `ring_end` is what both have
driving            the steps of the protocol, against a store, threads and a clock that are real
protocol           what a ring does: pure steps
address, opening   from a URL to a store
store              what a store must do, with `bounds` on what it is given
memory             the reference: records in this process
redis, etcd, mysql, aerospike   the stores on servers
links, sockets, redis_link, etcd_link   how those are talked to
generations        numbers of records, for stores that give them none
redis_durability   what the settings of a Redis promise
"""
