"""The folder of a queue or a log: opened, committed to, and looked at."""
