"""Every queue is a DataFrame: the source and the sink that Spark knows as `tidemill`.

session        a Spark session that is set up and quiet
remote         ... at a server of Spark Connect
job_progress   a bar for its long jobs
pipelines      functions between queues, run as streaming queries
testing        ... run over rows, in a test
shipping       the code, for executors that have none
reading        a queue or a log as a DataFrame
native_scan    ... its archived rows by Spark's own Parquet reader
writing        a DataFrame into the archive of a log
bulk_write     ... by Spark's own Parquet writer
data_source    what `format("tidemill")` is; Spark makes one for each read or write
source         ... its reading: planned on the driver, done by executors, in batches and streams
sink           ... its writing: staged by tasks, committed by the driver, once
address        where a queue is, and what it is
schema         columns as Spark has them
merging        many queues made one log
replaying      rows sent once more
profiling      what is in a queue, counted
archives       rows archived, and small segments made fewer, by many tasks at once
java           the Java that Spark runs on, also where the machine has none
class_archive  what Java keeps of Spark's classes, so that the next session starts faster
archiving      ... made by a process of its own
cache          files that are made once and kept
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tidemill.errors import MissingExtra

try:
    import pyspark  # noqa: F401
except ImportError as cause:
    raise MissingExtra(
        "Spark needs PySpark: pip install 'tidemill[spark]'; a client of a Spark Connect server "
        "needs less: pip install 'tidemill[connect]'"
    ) from cause

# Not for later like the rest: a module has the same name.
from tidemill.spark.session import session

if TYPE_CHECKING:
    from tidemill.spark.archives import archive, compact
    from tidemill.spark.merging import merge
    from tidemill.spark.pipelines import Pipeline, Sink, Source, pipeline, reject
    from tidemill.spark.profiling import Profile, profile
    from tidemill.spark.reading import read
    from tidemill.spark.replaying import replay
    from tidemill.spark.shipping import ship
    from tidemill.spark.writing import write

__all__ = [
    "Pipeline",
    "Profile",
    "Sink",
    "Source",
    "archive",
    "compact",
    "merge",
    "pipeline",
    "profile",
    "read",
    "reject",
    "replay",
    "session",
    "ship",
    "write",
]

# Each task of Spark imports this package, and needs little of it.
_HOMES = {
    "archive": "archives",
    "compact": "archives",
    "merge": "merging",
    "Profile": "profiling",
    "profile": "profiling",
    "read": "reading",
    "replay": "replaying",
    "ship": "shipping",
    "write": "writing",
}

if not TYPE_CHECKING:  # which would take every name for known

    def __getattr__(name: str) -> Any:
        """Import what is used for the first time."""
        if name not in __all__:
            raise AttributeError(f"module 'tidemill.spark' has no attribute {name!r}")
        home = import_module(f"tidemill.spark.{_HOMES.get(name, 'pipelines')}")
        globals()[name] = found = getattr(home, name)
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
