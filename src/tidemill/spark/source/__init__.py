"""The source: rows of a queue, a log or a ring, for Spark.

options        what a reader may be told; pure
batch_reader   a batch read, planned on the driver, done by executors
stream_reader  a streaming read, and the consumer it is
ring_reader    what a ring holds, read at once
offsets        what a checkpoint holds; pure
admission      how far a micro-batch goes; pure
planning       rows divided among tasks; pure
partitions     what a task is given
rows           what a log and the arrivals of a queue have in common
log_rows       ... the log
arrived_rows   ... the arrivals
chunks         batches large enough for Spark; pure
"""
