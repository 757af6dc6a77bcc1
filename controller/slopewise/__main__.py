"""The `slopewise` command. `commands/` has what it does; here only what must happen before that is imported."""

from __future__ import annotations

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line and exit."""
    # Importing takes a third of a second; a Ctrl-C in it ends us at once, without a traceback. The commands that
    # start anything handle signals themselves (`signals.py`).
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from slopewise.commands.app import run_command_line

    run_command_line()


if __name__ == "__main__":
    main()
