"""One module for each command, each with a `COMMAND`."""
