"""Rows of a log, or what is left of a queue, sent once more: to another queue, each once.

choice   which rows, and how they become those of the target
job      what the driver does: rounds of rows, each round one transaction
"""

from tidemill.spark.replaying.job import Replayed, replay

__all__ = ["Replayed", "replay"]
