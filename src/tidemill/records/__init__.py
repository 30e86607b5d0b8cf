"""Records that are atomic one at a time, on any store that has them, and the ring on top."""
