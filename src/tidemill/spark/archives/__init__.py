"""Archives at scale: executors store segments, and the driver is the archiver.

storing      what the driver has tasks do, and what they tell
task         one stretch of rows stored, or small segments made one
archive_job  rows of a log moved to its archive
compact_job  small segments of an archive made fewer
"""

from tidemill.spark.archives.archive_job import archive
from tidemill.spark.archives.compact_job import Compacted, compact

__all__ = ["Compacted", "archive", "compact"]
