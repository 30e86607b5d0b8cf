"""A log on MySQL or MariaDB: rows in sharded tables, decided by transactions of the server.

address      where it is: mysql://user@host/database/name
statements   all of the SQL
prepared     prepared statements, which PyMySQL lacks
connection   one connection, whose errors are ours
badges       how connections that fell silent are found, and ended
pool         connections that any thread may borrow
patience     how long, and how often, to try again
durability   what the server's settings promise
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
rounds       rows of an outbox that are published together, and how
outbox       a table that an application inserts into
relay        its rows, published once each
"""
