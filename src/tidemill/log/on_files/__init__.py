"""A log in a folder: the journal of `files`, ordered by seq, with no keys and no buckets.

    store       the contract, over the next four
    place       the folder as this process knows it: who owns it, who waits for its rows
    writer      the right to append
    rows        reads rows by number
    consumers   pointers that any process may move, with the token of who may
    staging     transactions into the log

Whoever reads, reads as a follower beside the owner, also in the owner's own process: so there is
one way of reading, which waits for nobody's commit.
"""
