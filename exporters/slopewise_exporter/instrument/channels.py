"""Copies the output of a command to where it would have gone, byte for byte, and shows it to a follower."""

from __future__ import annotations

import fcntl
import os
import pty
import selectors
import struct
import termios
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Callable

from slopewise_exporter.logs.splitter import LineSplitter
from slopewise_exporter.values import Checker

_BLOCK_BYTES = 65_536

_AFTER_END_SECONDS = 0.2
"""How long, altogether, pipes are still waited for once the command has ended: what it has left running may hold them
open, and write to them for good."""

_AFTER_END_BYTES = 2**21
"""How much is still copied then. A pipe holds 64 KiB, and 1 MiB at most where its user is not root."""

_STDOUT, _STDERR = 1, 2
_OPOST = 1


@dataclass
class Channel:
    """One pipe or terminal between the command and the files that it would have written to."""

    reads: int
    writes: int
    """The end that the command gets."""
    target: int
    is_terminal: bool
    stands_for: tuple[int, ...]
    """The numbers that the command has it under."""
    splitter: LineSplitter = field(default_factory=LineSplitter)


def open_channels() -> list[Channel]:
    """For standard output and standard error, one for both where they are the same file, so that the order stays.

    Where one cannot be opened, the command is executed in the place of this process, and the kernel closes the others.
    """
    if os.path.samestat(os.fstat(_STDOUT), os.fstat(_STDERR)):
        return [_open_channel(_STDOUT, (_STDOUT, _STDERR))]
    return [_open_channel(number, (number,)) for number in (_STDOUT, _STDERR)]


def _open_channel(target: int, stands_for: tuple[int, ...]) -> Channel:
    is_terminal = os.isatty(target)
    reads, writes = _open_terminal(target) if is_terminal else os.pipe()
    return Channel(reads, writes, target, is_terminal, stands_for)


class Copying:
    """A thread that copies all channels until the command has closed them."""

    def __init__(self, channels: list[Channel], take: Callable[[str], None]) -> None:
        """`take` gets each line, up to one for which it raises."""
        self._channels = channels
        self._take: Callable[[str], None] | None = take
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="slopewise-output", daemon=True)
        self._thread.start()

    def resize(self) -> None:
        """The size of the real terminal has changed."""
        for channel in self._channels:
            if channel.is_terminal:
                _copy_size(channel.target, channel.reads)

    def finish(self) -> None:
        """The command has ended: copy what is left of its output."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for channel in self._channels:
                selector.register(channel.reads, selectors.EVENT_READ, channel)
            patience, room = _AFTER_END_SECONDS, _AFTER_END_BYTES
            while selector.get_map():
                ended, since = self._ended.is_set(), monotonic()  # before: what it wrote last must not be missed
                ready = selector.select(patience)
                if ended:
                    patience -= monotonic() - since
                    if not ready or room <= 0:
                        break
                for key, _ in ready:
                    copied = self._copy(key.data)
                    if ended:
                        room -= copied
                    if not copied:
                        selector.unregister(key.data.reads)
                        # The command then gets the same error as from the file itself, e.g. SIGPIPE after `| head`.
                        os.close(key.data.reads)
        for channel in self._channels:
            self._show(channel.splitter.flush)

    def _copy(self, channel: Channel) -> int:
        """Copy one block; its bytes, 0 at the end of the output, or where its reader is gone."""
        try:
            block = os.read(channel.reads, _BLOCK_BYTES)
        except OSError:  # a terminal's other end was closed
            block = b""
        if not block or not write_all(channel.target, block):
            return 0
        self._show(lambda: channel.splitter.feed(block))
        return len(block)

    def _show(self, lines: Callable[[], list[str]]) -> None:
        if self._take is None:
            return
        try:
            for line in lines():
                self._take(line)
        except Exception as error:  # copying goes on: a command whose output nothing reads waits forever
            self._take = None
            Checker().warn("output", f"the output is not followed any more ({type(error).__name__}: {error})")


def write_all(target: int, block: bytes) -> bool:
    """Write all of it; False where nothing reads it any more. What does not fit on a full disk is dropped."""
    left = memoryview(block)
    while left:
        try:
            left = left[os.write(target, left) :]
        except BrokenPipeError:
            return False
        except BlockingIOError:  # shared with a program that made it non-blocking
            with selectors.DefaultSelector() as selector:
                selector.register(target, selectors.EVENT_WRITE)
                selector.select()
        except OSError:
            return True
    return True


def _open_terminal(real: int) -> tuple[int, int]:
    """Both ends of a second terminal, for a command whose output is followed: what is read here, and what it writes to.

    It is one to the command as the first is to its user. Only its output goes there: keys, Ctrl-C and job control stay
    with the real terminal, which the command keeps as its standard input and as its controlling terminal. OSError,
    termios.error.
    """
    master, slave = pty.openpty()
    modes = termios.tcgetattr(slave)
    # Each byte as it is: line ends are the business of the real terminal, which gets the bytes next.
    modes[_OPOST] &= ~termios.OPOST
    termios.tcsetattr(slave, termios.TCSANOW, modes)
    _copy_size(real, master)
    return master, slave


def _copy_size(real: int, master: int) -> None:
    """Give the terminal of the command the size of the real one."""
    with suppress(OSError):
        size = fcntl.ioctl(real, termios.TIOCGWINSZ, struct.pack("4H", 0, 0, 0, 0))
        fcntl.ioctl(master, termios.TIOCSWINSZ, size)
