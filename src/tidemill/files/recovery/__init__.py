"""From the files of a journal back to what is known."""
