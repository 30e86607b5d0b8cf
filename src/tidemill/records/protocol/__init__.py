"""The protocol of a ring, without any I/O: steps that ask for a record or a moment, and are told.

    geometry     how many records, which offset lies where
    metadata     the one record that says what the ring is: lock, fence, tail, groups, outcomes
    block        a buffer record: the entries of one block of offsets, and its mark
    buffers      reading and writing such records
    values       what a user puts in, as bytes
    requests     what a step may ask for
    memo         what a handle remembers between operations
    lock         grants, expiry, commit
    enqueueing, dequeueing, reading, groups, creation, removal      the operations

Each operation is a generator: it yields requests and is sent the answers, or has an error thrown at
it. Whoever drives it decides what is done and when: `tidemill.records.ring` against a store, and a
simulator in every order there is.
"""
