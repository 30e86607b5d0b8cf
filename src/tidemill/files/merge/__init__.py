"""The way out: frames that overlap are read and merged, and the next items chosen from them."""
