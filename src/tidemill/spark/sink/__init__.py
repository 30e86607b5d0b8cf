"""The sink: what Spark writes becomes readable at once, exactly once.

options       what a write may be told
checkpoint    the id of a streaming query
columns       which columns of a DataFrame go where
target        the queue or log that is written to, found or made
writers       what Spark calls: tasks stage their rows, the driver commits them
parts         what tasks have staged, as rows that Spark brings to the driver

    tasks     write()    ──▶  staging, a file or rows of a table for each attempt
    driver    commit()   ──▶  one operation: the rows of the attempts that count, and the mark of
                              the transaction (an id, and Spark's number of the batch)

Tasks and drivers may die and be repeated anywhere in between; see `files.staging`.
"""

from tidemill.spark.sink.writers import batch_writer, stream_writer

__all__ = ["batch_writer", "stream_writer"]
