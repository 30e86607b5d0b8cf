"""The folder: a journal of operations, and a priority queue that is derived from it."""
