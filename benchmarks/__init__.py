"""Measures the queue against the raw disk and against peers; see README.md."""
