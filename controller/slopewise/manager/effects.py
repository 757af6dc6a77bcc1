"""The effects of a policy's passes on pods, JobGrowths, statuses and finalizers; null objects in a dry run.

`shared.py` chooses once, and no other module checks for a dry run.
"""

from __future__ import annotations

from collections.abc import Iterator

from slopewise.adapters.kube.cache.records import FINALIZER
from slopewise.adapters.kube.client.protocol import Api
from slopewise.adapters.kube.state.job_growth_store import JobGrowthStore
from slopewise.adapters.kube.state.job_memory import KubeMemory, Remembered
from slopewise.adapters.kube.state.training_policies import (
    PolicyDocument,
    PolicyRecord,
    PolicyRecords,
    set_finalizer,
)
from slopewise.adapters.kube.workloads.owners import JobIndex
from slopewise.adapters.local.ports import DryRunActuator
from slopewise.loop import Sink
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import CpuAllocation, MemoryAllocation
from slopewise.ports import Actuator, Clock


class ForgetfulMemory(DictionaryMemory):
    """The memory of a dry run: nothing is stored, and no pod has an original. Shape: `KubeMemory`."""

    def holds_originals(self) -> bool:
        """Nothing was changed."""
        return False

    def original(self, job_uid: str) -> CpuAllocation | None:
        """A job's CPU is its original."""
        return None

    def original_memory(self, job_uid: str) -> MemoryAllocation | None:
        """A job's memory is its original."""
        return None

    def remembers(self, job_uid: str) -> bool:
        """Nothing is kept between two processes."""
        return False

    def remembered(self) -> Iterator[Remembered]:
        """None."""
        return iter(())

    def moves_made(self, job_uid: str) -> int:
        """None."""
        return 0

    def stored_original(self, job_uid: str) -> str:
        """Nothing is stored."""
        return "nothing is stored in a dry run"

    def retire(self, job_uids: object = None) -> None:
        """There is no JobGrowth."""


RunnerMemory = KubeMemory | ForgetfulMemory


class Effects:
    """Everything is carried out."""

    def __init__(self, api: Api, job_growths: JobGrowthStore, clock: Clock) -> None:
        self._api = api
        self._job_growths = job_growths
        self._clock = clock

    def memory(self, record: PolicyRecord, index: JobIndex, status: PolicyDocument | None) -> RunnerMemory:
        """The memory of a policy; `status` stores the intervals of its nodes and its records."""
        if status is None:  # the policy came as a file, and nothing is stored of it
            return KubeMemory(record.name, self._job_growths, index)

        def on_records(records: PolicyRecords) -> None:
            if status.remember_records(records, self._clock.monotonic()):
                self._job_growths.changed(status, transition=True)

        return KubeMemory(
            record.name, self._job_growths, index, intervals=record.intervals, on_nodes=status.remember,
            records=record.records, on_records=on_records,
        )  # fmt: skip

    def actuator(self, actuator: Actuator) -> Actuator:
        """Carries out the policy's decisions."""
        return actuator

    def sinks(self, *sinks: Sink) -> list[Sink]:
        """The sinks of pass reports beside the log and the metrics."""
        return list(sinks)

    def is_held(self, record: PolicyRecord) -> bool:
        """Whether the policy has a finalizer; a file cannot be deleted."""
        return FINALIZER in record.finalizers or not record.uid

    def set_finalizer(self, name: str, *, wanted: bool) -> None:
        """Set the finalizer, or remove it; ApiError when that fails."""
        set_finalizer(self._api, name, wanted=wanted)


class NoEffects(Effects):
    """Nothing is carried out or stored, and only the log and the metrics report."""

    def memory(self, record: PolicyRecord, index: JobIndex, status: PolicyDocument | None) -> RunnerMemory:
        """Nothing outlives the process."""
        return ForgetfulMemory()

    def actuator(self, actuator: Actuator) -> Actuator:
        """Reports what would have been done."""
        return DryRunActuator()

    def sinks(self, *sinks: Sink) -> list[Sink]:
        """None."""
        return []

    def is_held(self, record: PolicyRecord) -> bool:
        """It changes no pods, and needs no finalizer."""
        return True

    def set_finalizer(self, name: str, *, wanted: bool) -> None:
        """Sets none, and removes none: another controller's may be set."""
