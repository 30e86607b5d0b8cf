"""The log: dense numbers, one publisher, independent consumers.

log           the public face
opening       from an address to a store
start         where to start in it
publisher     the one that may write
send_line     sends that wait, gathered into groups
starting      how threads of ours are started
turn          one use of a lane, and who has to hear of it
waiting       sends that are in line
room          how much may be on its way
sends         what can be sent
producer      numbers under which a send is written once
receiver      gives a consumer its rows, and keeps what it acks
own_thread    a thread that is started once
merging       small batches given together
ack_pace      when a pointer is stored
ack_window    which rows are done; pure
home          the process that a handle belongs to
ending        what becomes of sends when the interpreter ends
contract      what a store must do to hold a log
numbering     numbers of appends that are under way; pure
frames        rows as frames, and back
refusals      errors that every store raises in the same words
memory        the reference: a log in this process
on_files      a log in a folder
sql           a log on a server; mysql and postgres are how it is told so
tiered        a log whose older rows are in an archive
archived_log  an archive by itself, read as the log that it is of
archive       the archive: Parquet segments and a manifest
retention     which rows are to go
restoring     rows of an archive back into a log
"""
