"""`tidemill`, and `python -m tidemill`: the command line, where the folder of the command is not in
the path.
"""

import signal
from typing import NoReturn


def run() -> NoReturn:
    """Load the command line, and run one command."""
    handler = signal.getsignal(signal.SIGINT)
    # Until it is loaded nothing was begun, and Ctrl-C ends the process as it ends any other: not
    # with a trace of what Python was importing. Where it is ignored, it stays so.
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from tidemill.gateway import command_line  # noqa: PLC0415

    signal.signal(signal.SIGINT, handler)
    command_line.run()


if __name__ == "__main__":
    run()
