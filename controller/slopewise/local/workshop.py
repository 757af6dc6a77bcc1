"""The journal, limiter, launcher and Prometheus program that all runs of one local command share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Self

import structlog

from slopewise.adapters.local.crash_journal import Journal, clean_up_after_killed, default_state_dir, new_run_id
from slopewise.adapters.local.crashed_runs import prune_logs
from slopewise.adapters.local.job_record import JobRecord
from slopewise.adapters.local.launcher import Launcher
from slopewise.adapters.local.limiters.choose import Limiter, choose_limiter
from slopewise.adapters.local.prometheus_server import PrometheusBinaries, find_prometheus
from slopewise.adapters.local.stored_files import made_folder
from slopewise.config.training_policy import TrainingPolicy
from slopewise.model import CpuControl

Announce = Callable[[str], None]


class ClosesStack:
    """A context manager whose exit closes the ExitStack that its entry filled, also after a Ctrl-C."""

    _stack: ExitStack

    def __exit__(self, *_: object) -> None:
        self._stack.close()


class Workshop(ClosesStack):
    """Journal, limiter, launcher and Prometheus program of one command. Its exit removes everything that it made."""

    def __init__(
        self, *, actuator: str, announce: Announce, jobs_identity: str | None = None, leaves_jobs: bool = False
    ) -> None:
        """`jobs_identity` (`jobs_file.identity_of`) names the user's jobs.

        With it no controller starts one of them a second time after a crash.
        None: built-in jobs, which end with this process. `leaves_jobs`: its end is like a crash to the jobs, which run
        on for the next one to take over.
        """
        self._leaves_jobs = leaves_jobs
        self.jobs_identity = jobs_identity
        self._actuator_choice = actuator
        self.announce = announce
        """Shows the user one line."""

    def __enter__(self) -> Self:
        self.state_dir = default_state_dir()
        """The folder of the journals and of the state that killed runs left."""
        for message in clean_up_after_killed(self.state_dir):
            self.announce(message)

        def close_journal() -> None:
            """Announce what could not be restored, and what runs on."""
            for message in self.journal.close(keeps_jobs=self._leaves_jobs):
                if self._leaves_jobs or "cannot" in message:
                    self.announce(message)

        with ExitStack() as stack:
            self.journal = Journal.open(self.state_dir, new_run_id())
            stack.callback(close_journal)
            self.limiter: Limiter = choose_limiter(self.journal, self._actuator_choice)
            structlog.get_logger(__name__).info("cpu is given by", actuator=self.limiter.description)
            stack.callback(self.limiter.close)
            self.launcher = Launcher(self.journal)
            self._stack = stack.pop_all()
        return self

    @cached_property
    def binaries(self) -> PrometheusBinaries:
        """The Prometheus program of this machine, downloaded where there is none; unused with `--prometheus-url`."""
        return find_prometheus(announce=self.announce)

    @property
    def best_control(self) -> CpuControl:
        """Shares, which FlowCon was written for and which waste no CPU; hard limits where shares cannot be had."""
        return "requests" if "requests" in self.limiter.controls else "limits"

    def controlled(self, policy: TrainingPolicy) -> TrainingPolicy:
        """The same document, with `best_control` where it leaves `control` out."""
        resources = policy.spec.resources
        if "control" in resources.model_fields_set:
            return policy
        chosen = resources.model_copy(update={"control": self.best_control})
        return policy.model_copy(update={"spec": policy.spec.model_copy(update={"resources": chosen})})

    def prune_logs(self, records: Iterable[JobRecord]) -> None:
        """Remove old logs of jobs that have ended; `records`: of all jobs of the session."""
        processes = (each.process for each in records if each.finished_at_seconds is None)
        used = [process.log_path for process in processes if process is not None]
        prune_logs(self.state_dir, self.journal.run_id, used)

    def users_logs(self, namespace: str) -> Path:
        """A new folder for the output of the user's commands; no exit removes it, but a later run its oldest files."""
        folder = made_folder(self.state_dir / "logs" / self.journal.run_id / namespace)
        self.announce(f"Output of the commands: {folder}")
        return folder
