"""Many priority queues become one log, in the order of their keys.

job      what the driver does: rounds of tasks, each round one transaction
ranges   the keys divided into ranges of about equal size; pure
queues   the queues that are merged: owned, and as they were at one moment
task     the items of one range, read from all queues, sorted and staged
memo     how far a merge has come, written down in the log

No item passes through Spark's own memory: tasks read the queues' frames and stage frames of the
log, and Spark hands out the ranges.
"""

from tidemill.spark.merging.job import Merged, merge

__all__ = ["Merged", "merge"]
