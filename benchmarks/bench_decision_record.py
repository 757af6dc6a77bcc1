"""What recording a pass costs: passes over 5,000 jobs with and without a decision record, side by side.

Gate: the record of a pass takes at most 0.5 CPU-seconds, a job in it at most 4 KB, and every pass is replayed
bit for bit.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench_decide import INTERVAL_SECONDS, world

from slopewise.config.pass_settings import pass_settings, policy_of
from slopewise.config.training_policy import TrainingPolicy
from slopewise.decision_record.reader import read
from slopewise.decision_record.recorder import RecordOptions
from slopewise.decision_record.replay import replay
from slopewise.loop import calm_garbage_collector
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import ClusterSnapshot, Decision, Observation, Outcome, PassReport
from slopewise.ports import Ports
from slopewise.reconcile import reconcile

JOBS, NODES, ROUNDS = 5_000, 250, 5
BOUND_SECONDS, BOUND_JOB_BYTES = 0.5, 4096


@dataclass
class Given:
    """The ports of a pass over one snapshot, in which every action is applied."""

    snapshot: ClusterSnapshot

    def observe(self) -> Observation:
        return Observation(self.snapshot)

    def carry_out(self, decision: Decision) -> Outcome[Decision]:
        return Outcome(decision, "applied")

    def restore(self, *_: object) -> None:
        raise AssertionError("no pass restores")

    def now(self) -> float:
        return self.snapshot.taken_at_seconds

    def monotonic(self) -> float:
        return time.monotonic()


def main() -> int:
    """The exit code: 1 above a bound."""
    calm_garbage_collector()
    document = TrainingPolicy.model_validate(
        {"spec": {"mode": "Auto", "policy": {"name": "flowcon"}, "behaviour": {"intervalSeconds": INTERVAL_SECONDS}}}
    )
    snapshot, memory = world(JOBS, NODES)
    policy, settings, given = policy_of(document), pass_settings(document), Given(snapshot)

    def run_pass(record: Callable[[Ports], Ports], sink: Callable[[PassReport], None]) -> float:
        kept = DictionaryMemory()
        kept.save(memory)
        began = time.process_time()
        sink(reconcile(record(Ports(given, given, kept, given)), policy, settings))  # type: ignore[arg-type]
        return time.process_time() - began

    with tempfile.TemporaryDirectory() as folder:
        recorder = RecordOptions(Path(folder), 10_000).recorder(document)
        plain, recorded = [], []
        for _ in range(ROUNDS):
            plain.append(run_pass(lambda ports: ports, lambda _: None))
            recorded.append(run_pass(recorder.ports, recorder))
        recorder.close()
        path = Path(folder) / "default.jsonl"
        job_bytes = path.stat().st_size / ROUNDS / JOBS
        began = time.process_time()
        differing = sum(bool(each.differences) for each in replay(read(path, print)))
        replaying = (time.process_time() - began) / ROUNDS
    without, with_record = statistics.median(plain), statistics.median(recorded)
    seconds = with_record - without
    times = with_record / without
    print(f"pass over {JOBS} jobs: {without:.2f} CPU-s, with its record {with_record:.2f} ({times:.2f} times)")
    print(f"record: {seconds:.2f} CPU-s (bound {BOUND_SECONDS}), {job_bytes:.0f} bytes a job (bound {BOUND_JOB_BYTES})")
    print(f"replayed in {replaying:.2f} CPU-s a pass, {differing} of {ROUNDS} differ")
    return int(seconds > BOUND_SECONDS or job_bytes > BOUND_JOB_BYTES or differing > 0)


if __name__ == "__main__":
    sys.exit(main())
