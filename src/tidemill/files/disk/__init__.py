"""The file system as a parameter, and what it takes to use it: open files, memory, errors."""
