"""The archive of a log: its older rows as Parquet files, in a folder or a bucket.

objects     the port: objects by name, written whole, replaced on condition
memory      the reference: objects in this process
folder      objects in a folder
s3          objects in a bucket
place       from an address to objects
manifest    which rows lie in which segment; pure
parquet     rows as a Parquet file, and back; pure
archive     an archive, opened: reading, and changing the manifest
dropping    giving up archived rows
sweeping    what crashes left
checkup     the doctor of an archive
report      what it says; pure
segment_writer   rows stored as segments, and read back
archiver    moves rows from a log to its archive
continuing  whether a log is the one that the archive holds rows of
compacting  small segments become one
bulk        files that others wrote, published as segments
pending     ... whether they count yet
archived    what came of it
restored    what came of restoring
notes       what a log writes down about its archive
"""
