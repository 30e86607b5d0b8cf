"""Replication over Arrow Flight: one node's links to its peers, and the server that they call.

mesh           the links to all peers, which `provider` may name
link           a thread that exchanges what either side lacks with one peer, through a `caller`
server         who may call, and how much at a time; `responder` answers
parcel         a message on the wire
refusals       errors of ours on the wire
sightings      two live nodes of one id, told from one that was started again; pure
gone           what takes the place of a ledger that must not be used any more
remote         the counters of a node, for a client that is none itself
traffic        what went to and fro, counted
tls            certificates; `certificate` reads the name in one
address, listening   where a node listens, and the socket there
arrow_flight, forking   what of Arrow Flight may be missing, and what must not end with a process
"""
