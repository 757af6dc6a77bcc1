"""A process that was started by others and runs already: whether it may become a job, and what it is as one.

It and its children come into a cgroup of the session's, and go back to where they came from (`MovedProcesses`) at the
end, or when the job is cancelled. It is never signalled: it was not started here, and its pid is only that of the same
process while its start time is.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import psutil

from slopewise.adapters.local.launcher import ForeignProcess, Members
from slopewise.adapters.local.limiters.identity import ProcessIdentity, identify
from slopewise.adapters.local.limiters.process_group import process_tree, running
from slopewise.errors import UsageError

RUNS_ON = "let go; it runs on without limits"
"""What there is to say of the end of a job whose process has not ended."""

ENDED = "it was attached, so how it ended is not known"

NO_METRICS = "it was attached and serves no metrics, so it keeps its share"

_MAX_PORTS = 8
_ANSWER_SECONDS = 2.0
"""Of an endpoint that is asked for metrics; a busy training answers within one."""

_METRICS_BYTES = 2**18

_ATTACH_ANOTHER = "give the process of a training"


def attachable(pid: int) -> ProcessIdentity:
    """The process of this pid; UsageError when it may not become a job."""
    if not 0 < pid <= 2**22 or not psutil.pid_exists(pid):  # the kernel has no higher one
        raise UsageError(f"there is no process {pid}; `ps -u` lists those of this user.")
    own = psutil.Process()
    try:
        process = psutil.Process(pid)
        identity = identify(pid)
        if pid in (own.pid, *(each.pid for each in own.parents())):
            raise UsageError(f"process {pid} is this session, or has started it; {_ATTACH_ANOTHER}.")
        if own.pid in (each.pid for each in process.parents()):
            raise UsageError(f"process {pid} was started by this session; {_ATTACH_ANOTHER}.")
        if os.geteuid() not in (0, process.uids().real):
            raise UsageError(f"process {pid} is that of {process.username()}; attach one of your own.")
        if not process.cmdline() and not process.exe():
            raise UsageError(f"process {pid} is a thread of the kernel; {_ATTACH_ANOTHER}.")
    except (psutil.NoSuchProcess, ProcessLookupError) as error:
        raise UsageError(f"process {pid} has just ended.") from error
    except psutil.AccessDenied as error:
        raise UsageError(f"process {pid} may not be looked at by this user; attach one of your own.") from error
    return identity


def command_of(pid: int) -> list[str]:
    """The words of its command; where they are not known, one for the process."""
    with suppress(psutil.Error, ValueError):
        words = psutil.Process(pid).cmdline()
        if words and words[0]:
            return [word.encode(errors="replace").decode() for word in words]
    return [f"process-{pid}"]


def metrics_port(pid: int) -> int | None:
    """Where a process, or one that it has started, serves metrics on this machine, best those of a training."""
    ports: set[int] = set()
    for each in process_tree(pid):
        with suppress(psutil.Error):
            open_ = psutil.Process(each).net_connections("tcp")
            ports |= {each.laddr.port for each in open_ if each.status == psutil.CONN_LISTEN}
    texts = {port: _metrics(port) for port in sorted(ports)[:_MAX_PORTS]}
    for mark in (b"\ntraining_", b"# TYPE "):
        for port, text in texts.items():
            if mark in text:
                return port
    return None


def _metrics(port: int) -> bytes:
    connection = HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().read(_METRICS_BYTES)
    except (OSError, HTTPException):
        return b""
    finally:
        connection.close()


class AttachedProcess(ForeignProcess):
    """The process of an attached job. Nothing here signals it: what is left of it at its end runs on."""

    def __init__(self, name: str, identity: ProcessIdentity, members: Members) -> None:
        """`members`: its processes in the limiter."""
        super().__init__(name, identity.pid, Path(os.devnull), members)
        self._identity = identity
        self._collected = True

    @property
    def created_at_seconds(self) -> float:
        """When it was started, in Unix seconds; now, where it has just ended."""
        try:
            return psutil.Process(self.pid).create_time()
        except psutil.NoSuchProcess:
            return time.time()

    def has_ended(self) -> bool:
        """True once the process itself has ended, whatever has become of what it started."""
        return not self._identity.exists or not running([self.pid])

    def tail(self, lines: int = 10) -> str:
        """What takes the place of its output, which goes where it was started."""
        return ENDED if self.has_ended() else RUNS_ON
