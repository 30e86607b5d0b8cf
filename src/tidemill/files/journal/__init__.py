"""The journal: segments and their files, appending to them, and finding records in them."""
