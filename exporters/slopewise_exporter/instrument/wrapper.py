"""Runs a command that no import hook can reach, as its parent: follows its output and reports for it.

The command keeps the process group, the terminal and the standard input, so that Ctrl-C, Ctrl-Z and a signal to the
group reach it as they would without a parent. A signal that is sent to this process alone is sent on. This process ends
as the command did, by the same exit code or the same signal.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from slopewise_exporter.instrument.channels import Channel, Copying, open_channels
from slopewise_exporter.instrument.claim import Claim, claim_as_wrapper, token
from slopewise_exporter.instrument.follower import OutputFollower
from slopewise_exporter.reporter import Reporter
from slopewise_exporter.values import Checker

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

_SENT_ON = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

_ASKING_TO_END = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)

_FROM_THE_KERNEL = 0x80
"""SI_KERNEL, on Linux: a key of the terminal, or its end. The command, in the same group, has received it as well."""


_POLL_SECONDS = 0.1


class NotStarted(Exception):  # noqa: N818 - what it is; the command is then executed in place of this process
    """The command could not be started with its output followed."""


def run(arguments: Sequence[str], environment: Mapping[str, str], patterns: Sequence[str]) -> NoReturn:
    """Run the command to its end, and end as it did. NotStarted: nothing has happened yet."""
    if not hasattr(signal, "sigwaitinfo"):
        raise NotStarted("this system cannot wait for signals")
    # One that is ignored, as under nohup, stays ignored here and in the command.
    signals: set[int] = {number for number in _SENT_ON if signal.getsignal(number) is not signal.SIG_IGN}
    waited_for: set[int] = {*signals, signal.SIGCHLD, signal.SIGWINCH}
    # Ignored, as a parent may leave it, the system would keep no end of a child, and send no signal of it.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    mask: set[int] = set(signal.pthread_sigmask(signal.SIG_BLOCK, waited_for))
    try:
        report = _OutputReport(dict(environment), patterns, arguments)
        channels = open_channels()
        copying = Copying(channels, report.take)
        pid = _start(arguments, environment, channels, mask)
        report.pid = pid
    except Exception as error:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        raise NotStarted(f"{type(error).__name__}: {error}") from error
    try:
        status, asked = _attend(pid, waited_for, copying)
        copying.finish()
        _end_report(report, signals, failed=status != 0, linger=not asked)
    except Exception as error:  # the command runs: whatever fails now, it must not be started a second time
        Checker().warn("wrapper", f"nothing is reported any more ({type(error).__name__}: {error})")
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _, status = os.waitpid(pid, 0)
    _end_like(status, mask)


def _start(arguments: Sequence[str], environment: Mapping[str, str], channels: list[Channel], mask: set[int]) -> int:
    """Its pid. The ends that it writes to are closed, also where there is no such program: the copying then ends."""
    actions = [(os.POSIX_SPAWN_DUP2, channel.writes, number) for channel in channels for number in channel.stands_for]
    try:
        return os.posix_spawnp(
            arguments[0],
            list(arguments),
            dict(environment),
            file_actions=actions,
            setsigmask=mask,
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],  # which Python ignores, and a shell does not
        )
    finally:
        for channel in channels:
            os.close(channel.writes)


def _attend(pid: int, waited_for: set[int], copying: Copying) -> tuple[int, bool]:
    """Send signals on until the command has ended, which leaves a zombie.

    Returns its wait status, and whether a signal has asked it to end.
    """
    asked = False
    while True:
        received = signal.sigwaitinfo(waited_for)
        if received.si_signo == signal.SIGCHLD:
            if (status := _ended(pid)) is not None:
                return status, asked
            continue
        asked = asked or received.si_signo in _ASKING_TO_END
        if received.si_signo == signal.SIGWINCH:
            copying.resize()
        elif received.si_code == _FROM_THE_KERNEL:
            continue
        with suppress(ProcessLookupError):
            os.kill(pid, received.si_signo)


def _ended(pid: int) -> int | None:
    """The wait status of the command; None: it runs. Collects orphans, which a container's first process gets."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return None
        if ended is None:
            return None
        if ended.si_pid == pid:
            # Not collected yet: while it is a zombie, the system still has its start and its CPU time.
            return ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status
        os.waitpid(ended.si_pid, 0)


def _end_report(report: _OutputReport, signals: set[int], *, failed: bool, linger: bool) -> None:
    """Wait for the last scrape; a signal ends that, as it would have ended the command."""
    ending = threading.Thread(target=partial(report.end, failed=failed, linger=linger), daemon=True)
    ending.start()
    while ending.is_alive():
        if linger and signal.sigtimedwait(signals, 0) is not None:
            return
        ending.join(_POLL_SECONDS)


def _end_like(status: int, mask: set[int]) -> NoReturn:
    """End by the same code or signal."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the command has written its core already
            if number != signal.SIGKILL:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask - {number})
        os.kill(os.getpid(), number)
        os._exit(128 + number)  # the first process of a container is not ended by a signal of its own
    os._exit(os.WEXITSTATUS(status))


class _ReporterOfChild(Reporter):
    def __init__(self, pid: int) -> None:
        self._pid = pid
        super().__init__()

    def _process_metrics(self) -> Collector:
        from slopewise_exporter.exposition import ProcessFacts

        return ProcessFacts(self._pid)


class _OutputReport:
    """Reports what the output says, until a process of the command reports itself."""

    def __init__(self, environment: dict[str, str], patterns: Sequence[str], arguments: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._off = False
        self._reporter: Reporter | None = None
        self._follower = OutputFollower(patterns, self._open, lambda: arguments)
        self._claim: Claim | None = claim_as_wrapper(token(environment), self._gives_up)
        self.pid = 0

    def take(self, line: str) -> None:
        """One line of output."""
        if not self._off:
            self._follower.take(line)

    def end(self, *, failed: bool, linger: bool) -> None:
        """The command has ended: wait for a last scrape, where `linger`."""
        with self._lock:
            self._off = True
        if self._reporter is not None:
            self._reporter.end(failed=failed, linger=linger)

    def _open(self) -> Reporter | None:
        with self._lock:
            if self._off:
                return None
            if self._reporter is None:
                self._reporter = _ReporterOfChild(self.pid)
            return self._reporter

    def _gives_up(self, _rank: bytes) -> bool:
        """A process of the command reports by something better, or sees the output earlier."""
        with self._lock:
            self._off = True
            reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.leave()
        return True
