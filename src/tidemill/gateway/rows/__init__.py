"""Rows in files and pipes: NDJSON, CSV, Parquet and lines, to and from Arrow batches."""
