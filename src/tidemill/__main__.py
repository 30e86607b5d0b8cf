"""`python -m tidemill`: the command line, where the folder of the command is not in the path."""

from tidemill.gateway.command_line import run

if __name__ == "__main__":
    run()
