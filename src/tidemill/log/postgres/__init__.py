"""PostgreSQL as the home of a log: what differs from other servers (see `log.sql`).

statements   the SQL of its own
waiting      for answers, but not for ever
connection   one connection, whose errors are ours
refusals     the server's errors, and which of ours they are
durability   what the server's settings promise
dialect      all of it together
"""
