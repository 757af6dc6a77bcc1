"""Follows the passes of a session, for the commands that show them, and the changes of its policy file."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from slopewise.config.training_policy import TrainingPolicy, TrainingPolicySpec, load_training_policy
from slopewise.crds import history
from slopewise.crds.growth_status import running_status, view_of
from slopewise.crds.job_growth import JobGrowthStatus
from slopewise.errors import SlopewiseError
from slopewise.local.workshop import Announce
from slopewise.model import PassReport


class FollowedPasses:
    """A sink of reports: the state and the history of each job, in the words of a JobGrowth."""

    def __init__(self, spec: Callable[[], TrainingPolicySpec]) -> None:
        """`spec`: of the policy that the last pass decided by."""
        self._spec = spec
        self.statuses: Mapping[str, JobGrowthStatus] = {}
        """By name. Replaced as a whole: passes have a thread of their own."""

    def __call__(self, report: PassReport) -> None:
        """One more pass; nothing is followed of one that was held."""
        spec = self._spec()
        view = view_of(report, policy=spec.policy_name, mode=spec.mode, control=spec.resources.control)
        if view is None:
            return
        statuses = dict(self.statuses)
        for job in view.snapshot.jobs:
            before = statuses.get(job.name, JobGrowthStatus())
            actions = before.history
            for action in history.actions_of(report, job.uid):
                actions = history.appended(actions, action)
            statuses[job.name] = running_status([job], view, before).model_copy(update={"history": actions})
        self.statuses = statuses

    def forget(self, names: Collection[str]) -> None:
        """Other jobs have these names from now on."""
        self.statuses = {name: status for name, status in self.statuses.items() if name not in names}


class PolicyFile:
    """A policy file that may change while its session runs."""

    def __init__(self, path: Path, announce: Announce) -> None:
        self.path = path
        self._announce = announce
        self._seen = self._stamp()

    def changed(self) -> TrainingPolicy | None:
        """The document since the file has changed; None: it has not, or cannot be used, which is said once."""
        stamp = self._stamp()
        if stamp in (None, self._seen):
            return None
        self._seen = stamp
        try:
            return load_training_policy(self.path)
        except SlopewiseError as error:
            self.refuse(error)
            return None

    def refuse(self, error: SlopewiseError) -> None:
        """Say that the file changes nothing."""
        self._announce(f"{error} Nothing is changed until the file can be used.")

    def _stamp(self) -> tuple[int, int] | None:
        """What is another one after a change; None while the file is being replaced."""
        try:
            status = self.path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino
