"""Every bound of the package, in one place.

A bound is checked before anything is allocated or written. Units come last in each name.
"""

from __future__ import annotations

KIB = 1024
MIB = 1024 * KIB

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1
TIME_US_MAX = 253_402_300_799_999_999  # the end of the year 9999, the last that datetime can hold

ITEM_BYTES_MAX = 64 * MIB  # one row's payload
BATCH_BYTES_MAX = 1024 * MIB  # one push, all columns together
BATCH_ROWS_MAX = 2**26  # one push
FRAME_ROWS_MAX = 2**26  # one frame; a push of one bucket is one frame
FRAME_BODY_BYTES_MAX = BATCH_BYTES_MAX + 64 * MIB  # an encoded body, padding and metadata included
FRAME_METADATA_BYTES_MAX = 4 * MIB  # the flatbuffer in front of an encoded body
DECOMPRESSED_BYTES_MAX = BATCH_BYTES_MAX + 64 * MIB  # what a compressed body may claim to become
DECOMPRESSED_BYTES_MIN = 16 * MIB  # what even the smallest compressed body may become; above this
DECOMPRESSED_RATIO_MAX = 256  # ... at most so many times its own size
SCHEMA_COLUMNS_MAX = 2_000
SCHEMA_BYTES_MAX = 1 * MIB  # one serialized payload schema
SCHEMA_DEPTH_MAX = 32  # nesting of lists and structs
SCHEMA_VERSIONS_MAX = 1_000

NAME_LENGTH_MAX = 64
COUNTER_NAME_LENGTH_MAX = 256
FORKS_MAX = 10_000
SEQ_MAX = 2**62  # an arrival number that stored bytes may claim
SEGMENTS_MAX = 2**31 - 1  # of one folder, counted through its life

SMALL_FRAME_BYTES = 4 * KIB  # of frames that are put together when they are read
SHARED_FRAME_ITEM_BYTES_MAX = 64 * KIB  # a larger single item gets a frame of its own
COMMIT_BYTES_MAX = 256 * MIB  # of operations that share a write, unless one alone is larger
SEGMENT_BYTES = 64 * MIB  # what a segment is preallocated to and rolled at
ZEROES_BYTES_MAX = MIB  # written ahead of small operations that are synced
RECORDS_PER_SEGMENT_MAX = 16 * KIB  # ... or at so many records, which opening reads one by one
SEGMENT_BYTES_MIN = 16 * KIB
STATE_BYTES_MAX = 64 * MIB  # the state a segment starts with
CUTS_PER_FORK_MAX = 4_096  # past this, old segments are carried forward so that their cuts can go
BUCKETS_OPEN_MAX = 4  # buckets whose merge stays in memory between operations
FILES_OPEN_MAX = 16  # sealed segments whose files stay open between reads
MERGE_BYTES_MAX = 96 * MIB  # loaded frames of one open bucket; more is sorted outside memory
KEPT_BYTES_MAX = 4 * MIB  # pushed between two pops that need not be read; forks share it
WINDOW_ROWS = 64 * KIB  # rows merged ahead of the pops that will take them
CARRY_ROWS_MAX = KIB  # rows of a frame that a carry writes; pops hold one of each segment
CARRY_SEGMENT_BYTES = 32 * MIB  # what tiny frames and small segments are merged to
SHELF_MEMORY_BYTES_MAX = 4 * MIB  # rewritten frames that wait in memory, not in a file
CARRY_MERGE_BYTES_MAX = 32 * MIB  # loaded frames of a bucket that is rewritten
CARRY_BYTES = 2 * MIB  # ... and about how many bytes
SHOVEL_ROWS_MAX = 4 * KIB  # rows of a frame that is moved from queue to queue
SHOVEL_BYTES = 8 * MIB  # moved from queue to queue in one operation
TINY_FRAME_BYTES = 16 * KIB  # a segment whose frames are smaller on average is rewritten
TINY_FRAMES_MIN = 256  # ... if it holds at least so many of them
BYTES_MAX_LEAST = 8 * SEGMENT_BYTES_MIN  # the least disk that a bounded queue can work with
AIO_THREADS_MAX = 8  # of one queue that is used from asyncio
AIO_CALLS_PER_END_MAX = 4  # ... of which one end, the queue's own or a fork, takes so many
PUSHES_PER_ROUND_MAX = 1_024  # awaited at the same time that share a group commit
FINDINGS_MAX = 10_000  # of one report; what is beyond is counted only
ACK_RUNS_MAX = 1_000_000  # of rows acked out of turn, for one consumer; 16 bytes each
SHARED_SEND_BYTES_MAX = 64 * KIB  # a larger send gets frames of its own
PENDING_SEND_BYTES_MAX = 64 * MIB  # of sends that wait to be written, before senders wait as well
PREFETCH_BYTES = 16 * MIB  # of rows that a receiver has read ahead
RECEIVED_ROWS_MAX = 65_536  # of one batch that a receiver gives
DIGEST_BYTES_MAX = 32  # of what a producer says about a numbered send
PRODUCERS_MAX = 10_000  # whose last number a log in a folder remembers
NOTES_MAX = 100  # small facts about a log
SKIPS_KEPT = 64  # times that numbers were skipped, of which a log in a folder knows which
NOTE_BYTES_MAX = 64 * KIB  # one of them
STAGED_CHUNK_BYTES = MIB  # of rows that a task stages together; fewer than twice as many
STAGED_PIECE_BYTES = 2 * MIB  # of staged frames that are copied in one go, or one if it is larger
STAGED_S_MAX = 7 * 24 * 3600  # how long rows lie staged before a commit of others sweeps them away
MERGE_RANGE_BYTES = 32 * MIB  # of queues that one task of a merge is to read
MERGE_MEMORY_BYTES = 128 * MIB  # that it reads at once, or one row; what is more, it divides
MERGE_ROUND_BYTES = 1024 * MIB  # of queues that become one transaction
REPLAY_ROUND_BYTES = 256 * MIB  # stored, of rows that a replay commits as one transaction
REPLAY_ROUND_ROWS = 2**24  # ... or so many rows
TRANSACTION_BYTES_MAX = 3072 * MIB  # that a merge or a replay stages; a folder takes 4 GiB at once
PROFILE_COLUMNS_AT_ONCE = 50  # that one query of a profile is about
QUERY_STARTS_MAX = 20  # of a query that Spark found no time for, with no batch in between
DRIVER_WAIT_S = 60  # how long a pipeline waits for the Java of a run that was killed to end
OWNER_WAIT_S = 10  # how long a commit waits for another process to let go of the folder
ARCHIVE_SEGMENT_BYTES = 128 * MIB  # of rows in memory that become one segment of an archive
ARCHIVE_SEGMENT_ROWS = 2**22  # ... or so many rows
ROW_GROUP_BYTES = 16 * MIB  # of rows in memory that are read from a segment in one go
ROW_GROUP_ROWS = 128 * KIB  # ... or so many rows
MANIFEST_BYTES_MAX = 64 * MIB
MANIFEST_SEGMENTS = 256  # that stand in a manifest; twice as many, and the older half is a page
COMPACTED_SEGMENTS = 16  # small ones side by side that become one
RECORD_NAME_LENGTH_MAX = 128  # of a record in a store: the name of a ring, and what follows it
RING_CAPACITY_MAX = 2**31  # entries of one ring
RING_SLOTS_PER_RECORD_MAX = 64 * KIB
RING_OVERWRITES_MAX = 1_000  # entries written over others by one call, or one record if it has more
RING_GROUPS_MAX = 64  # each with a head of its own
RING_OUTCOMES_KEPT = 64  # operations of a ring whose outcome can be asked for
RING_OPERATION_ID_BYTES_MAX = 256  # what a caller may call an operation
RING_LOCK_MS_MAX = 3_600_000  # a lock that is held longer can be broken
RING_BUFFERS_PER_CALL = 64  # records that a ring reads or writes in one call of its store
COUNTERS_MAX = 2**24  # of one replica, deleted ones that are not dropped yet included
REPLICAS_MAX = 1_024  # lives of nodes that a replica of counters knows
MESSAGE_ROWS_MAX = 2**27  # of what one replica of counters tells another at once
COUNTER_JOURNAL_ROWS_MIN = 65_536  # that replace older ones in a folder before a snapshot does
COUNTER_PEERS_MAX = 256  # of one node of counters
PEERS_FILE_BYTES_MAX = 256 * KIB  # that lists them
SUPERSEDED_MAX = 16  # processes of one node that were seen before the present one
CERTIFICATE_BYTES_MAX = 1 * MIB  # a file in PEM
MESSAGE_BYTES_MAX = 256 * MIB  # between two nodes of counters; all that one lacks is one message
CALLS_MAX = 64  # that a node of counters answers at once
REFUSAL_BYTES_MAX = 64 * KIB  # an error on the wire
HTTP_BODY_BYTES_MAX = 1 * MIB  # of a request
HTTP_HEAD_BYTES_MAX = 16 * KIB  # ... and its head
HTTP_CONNECTIONS_MAX = 256  # of one server
TOKEN_BYTES_MIN = 16  # of a secret that opens it
COMMAND_BYTES_MAX = 8 * MIB  # that a client sends to a node of counters
READER_S_MAX = 3_600  # that a read-only node of counters may be silent before it is forgotten
