"""The `slopewise` command. `cli.py` has the commands; here only what must happen before they are imported."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    # Importing takes a third of a second; a Ctrl-C in it ends us at once, without a traceback. The commands that
    # start anything handle signals themselves (`interrupts.py`).
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from controller.cli import run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
