"""The `slopewise` command on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from contextlib import suppress


def on_a_terminal(
    arguments: tuple[str, ...],
    width: int = 80,
    act: Callable[[Callable[[], str]], None] | None = None,
    **environment: str,
) -> tuple[int, str]:
    """Exit code and output of a command on a terminal of 24 lines; `act` gets what was shown so far, then Ctrl-C."""
    terminal, ours = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    os.set_blocking(terminal, False)
    without = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "slopewise", *arguments], stdin=ours, stdout=ours, stderr=ours,
        env={**without, "TERM": "xterm", **environment},
    )  # fmt: skip
    os.close(ours)
    shown = bytearray()

    def read() -> str:
        with suppress(OSError):  # nothing yet, or the other end is closed
            while part := os.read(terminal, 65_536):
                shown.extend(part)
        return shown.decode(errors="replace")

    try:
        if act is not None:
            act(read)
            process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + 180
        while process.poll() is None and time.monotonic() < deadline:
            read()
            time.sleep(0.05)
        return process.wait(1), read()
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
