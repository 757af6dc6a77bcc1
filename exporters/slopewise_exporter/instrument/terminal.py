"""A second terminal for a command whose output is followed, which is one to the command as the first is to its user.

Only its output goes there. Keys, Ctrl-C and job control stay with the real terminal, which the command keeps as its
standard input and as its controlling terminal.
"""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import termios
from contextlib import suppress

_OPOST = 1


def open_terminal(real: int) -> tuple[int, int]:
    """Both ends: what is read here, and what the command writes to; OSError, termios.error."""
    master, slave = pty.openpty()
    try:
        modes = termios.tcgetattr(slave)
        # Each byte as it is: line ends are the business of the real terminal, which gets the bytes next.
        modes[_OPOST] &= ~termios.OPOST
        termios.tcsetattr(slave, termios.TCSANOW, modes)
        copy_size(real, master)
    except BaseException:
        os.close(master)
        os.close(slave)
        raise
    return master, slave


def copy_size(real: int, master: int) -> None:
    """Give the terminal of the command the size of the real one."""
    with suppress(OSError):
        size = fcntl.ioctl(real, termios.TIOCGWINSZ, struct.pack("4H", 0, 0, 0, 0))
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)
