"""The folder: a journal of operations, and a priority queue that is derived from it.

    doctor      verifies and repairs
    queue       the public face: priority queue, forks, reads, consumers
    shovel      from one queue to another
    upkeep      room, garbage and damage, while a queue is used
    readers     beside the owner
    folder      opened, committed to, looked at
    recovery    from the files back to what is known      merge    the way out
    commit      the way in                                index    which frames there are
    sharing     who holds what                            staging  rows of many processes
    journal     segments, and the records in them         state    forks and cuts
    format      bytes and values
    disk        the file system as a parameter
    report      what the doctor says of a folder          advice   commands that it names

A package imports from those below it only.
"""
