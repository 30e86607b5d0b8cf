"""MySQL and MariaDB as the home of a log: what differs from other servers (see `log.sql`), and the
outbox, which only they have.

statements   the SQL of its own
prepared     prepared statements, which PyMySQL lacks
connection   one connection, whose errors are ours
durability   what the server's settings promise
dialect      all of it together
rounds       rows of an outbox that are published together, and how
outbox       a table that an application inserts into
relay        its rows, published once each
"""
