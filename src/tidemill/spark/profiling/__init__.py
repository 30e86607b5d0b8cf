"""What is in a queue, a log or an archive: counted by Spark, a few numbers of it brought here.

profile   what was found, for people and for programs; pure
values    columns as numbers, bytes and hashes, as Spark computes them
measure   the queries
job       which rows, and one query after the other
"""

from tidemill.spark.profiling.job import profile
from tidemill.spark.profiling.profile import Profile

__all__ = ["Profile", "profile"]
