"""A log on a server: rows in sharded tables, decided by transactions of the server.

Servers differ by their dialect alone: `log.mysql`.

address      where it is: mysql://user@host/database/name
settings     what the server's settings promise
statements   the SQL, but for what dialects say in their own way
connection   one connection, whose errors are ours
sockets      what it tells without being asked
dialect      in what servers differ
badges       how connections that fell silent are found, and ended
pool         connections that any thread may borrow
patience     how long, and how often, to try again
tables       making the tables, and bringing them up to date
under_way    the appends between their rows and the pointer: pure
throttle     so many writes a second: pure
rows         frames packed into rows, and back
takeover     becoming the publisher
marks        what is known of producers
consumers    their pointers and tokens
trimming     giving up rows
store        the log
reading      the shards merged by number
lane_connections  those of a writer
appending    what an append tells the server
writer       the right to append
staging      transactions: frames that wait in a table of their own
checkup      the doctor: looks, and changes nothing
"""
