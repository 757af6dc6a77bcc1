"""One pass, through its ports: what is written, in which order, and what happens when the world fails."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from support.passes import OPEN, pass_over
from support.worlds import (
    START,
    FakeActuator,
    FakeMemory,
    a_job,
    a_node,
    a_snapshot,
)

from slopewise.errors import ObservationError, PolicyError, SlopewiseError
from slopewise.model import (
    Arrival,
    Bounds,
    ClusterSnapshot,
    CpuAllocation,
    Decision,
    Decisions,
    Job,
    JobMemory,
    Levels,
    MemoryAllocation,
    MemoryState,
    MemoryUse,
    MoveUnderWay,
    NodeMemory,
    Objectives,
    Outcome,
    PassReport,
    PolicyMemory,
    QoeStatus,
    Resize,
    ResizeMemory,
    TargetStatus,
    Usage,
)


@dataclass
class Wants:
    """A policy that wants the same limits in every pass."""

    millicores: dict[str, int]

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        resizes = tuple(
            Resize(job.uid, job.node, "limits", job.allocation.limit_millicores or 2000, to, "wanted")
            for job in snapshot.jobs
            if (to := self.millicores.get(job.uid))
        )
        return Decisions("wants", resizes, {job.uid: "because" for job in snapshot.jobs}, memory)


def a_pass(
    observed: ClusterSnapshot | ObservationError,
    actuator: FakeActuator,
    memory: FakeMemory,
    wants: dict[str, int],
    bounds: Bounds = OPEN,
) -> PassReport:
    return pass_over(observed, Wants(wants), actuator, memory, bounds)


def two_jobs(**limit: int) -> ClusterSnapshot:
    return a_snapshot([a_job(uid, limit=limit.get(uid)) for uid in ("a", "b")], [a_node(cpu_cores=2.0)])


def test_decreases_are_carried_out_before_increases() -> None:
    actuator = FakeActuator()
    a_pass(two_jobs(a=500, b=1500), actuator, FakeMemory(), {"a": 1500, "b": 500})
    assert [resize.job_uid for resize in actuator.done] == ["b", "a"]


def test_the_pods_of_a_workload_are_changed_for_the_first_time_together() -> None:
    ranks = ("gang:0", "gang:1", "gang:2")
    seen = a_snapshot([a_job(uid, limit=1000) for uid in (*ranks, "b")], [a_node(cpu_cores=8.0)])
    actuator = FakeActuator()
    memory = FakeMemory(MemoryState(nodes={"n1": NodeMemory(frozenset(ranks), START, 320.0)}))
    report = pass_over(seen, Wants(dict.fromkeys((*ranks, "b"), 500)), actuator, memory, first_changes_a_pass=1)
    assert [resize.job_uid for resize in actuator.done] == list(ranks)
    assert report.requeue_at_seconds == START + 20.0, "the other one waits for its turn, and not for longer"


def test_so_many_jobs_are_changed_for_the_first_time_in_a_pass_and_the_others_in_later_ones() -> None:
    jobs = [a_job(uid, limit=1000) for uid in "abcd"]
    seen = a_snapshot(jobs, [a_node(cpu_cores=8.0)])
    actuator = FakeActuator()
    memory = FakeMemory(MemoryState({"a": JobMemory(original=CpuAllocation(None, 1000))}))
    policy = Wants({"a": 2000, "b": 2000, "c": 500, "d": 2000})

    first = pass_over(seen, policy, actuator, memory, first_changes_a_pass=1)
    assert [resize.job_uid for resize in actuator.done] == ["c", "a"], (
        "one that is new, the decrease, and the known one"
    )
    assert {uid for uid, each in memory.saved[-1].jobs.items() if each.original} == {"a", "c"}
    waiting = [each for each in first.results.of(Resize) if each.result == "deferred"]
    assert [each.decision.job_uid for each in waiting] == ["b", "d"]
    assert "its turn comes in a later one" in waiting[0].detail

    pass_over(seen, policy, actuator, memory, first_changes_a_pass=1)
    assert [resize.job_uid for resize in actuator.done[2:]] == ["c", "a", "b"]


def test_one_failure_never_stops_the_others() -> None:
    actuator = FakeActuator(refuses=frozenset({"a"}))
    memory = FakeMemory()
    report = a_pass(two_jobs(), actuator, memory, {"a": 500, "b": 700})
    assert [(o.decision.job_uid, o.result) for o in report.results.of(Resize)] == [("a", "failed"), ("b", "applied")]
    assert report.results.of(Resize)[0].detail == "a is gone"
    cooling = [memory.state.jobs[uid].last_resized_at_seconds for uid in ("a", "b")]
    assert cooling == [None, START], "only what was carried out starts a cooldown"
    assert set(report.seconds_by_verb) == {"observe", "decide", "guard", "act"}


@pytest.mark.parametrize("why", ["Prometheus at http://127.0.0.1:1 refused the connection"])
def test_a_pass_that_cannot_observe_changes_nothing_and_says_why(why: str) -> None:
    actuator, memory = FakeActuator(), FakeMemory()
    report = a_pass(ObservationError(why), actuator, memory, {"a": 500})
    assert (report.held, actuator.done, memory.saved) == (why, [], [])
    assert report.requeue_at_seconds == START + 20.0


def test_a_pass_whose_policy_fails_changes_nothing_and_says_why() -> None:
    class Fails(Wants):
        def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
            raise PolicyError("policy mine failed: division by zero")

    actuator, memory = FakeActuator(), FakeMemory()
    report = pass_over(two_jobs(), Fails({}), actuator, memory)
    assert (report.held, report.policy_failed) == ("policy mine failed: division by zero", True)
    assert (actuator.done, memory.saved) == ([], [])
    assert report.requeue_at_seconds == START + 20.0
    assert set(report.seconds_by_verb) == {"observe", "decide"}


def test_originals_are_stored_before_the_first_change_and_never_overwritten() -> None:
    memory = FakeMemory()

    class Checks(FakeActuator):
        def carry_out(self, decision: Decision) -> Outcome[Decision]:
            assert memory.state.jobs["a"].original == CpuAllocation(None, 1000)
            return super().carry_out(decision)

    actuator = Checks()
    a_pass(two_jobs(), actuator, memory, {"a": 500})
    a_pass(two_jobs(a=500), actuator, memory, {"a": 250})
    assert len(actuator.done) == 2
    assert memory.state.jobs["a"].original == CpuAllocation(None, 1000)
    assert memory.state.jobs["b"].original is None


def test_when_the_memory_cannot_be_stored_nothing_is_changed() -> None:
    class Full(FakeMemory):
        def save(self, state: MemoryState) -> None:
            raise SlopewiseError("no space left")

    actuator = FakeActuator()
    with pytest.raises(SlopewiseError, match="no space left"):
        a_pass(two_jobs(), actuator, Full(), {"a": 500})
    assert actuator.done == []


@pytest.mark.parametrize(("bounds", "looks_after"), [(OPEN, 320.0), (replace(OPEN, max_step_ratio=1.5), 20.0)])
def test_what_is_outstanding_is_looked_at_after_one_interval_also_in_back_off(
    bounds: Bounds, looks_after: float
) -> None:
    memory = FakeMemory(MemoryState(nodes={"n1": NodeMemory(frozenset({"a", "b"}), START, 320.0)}))
    report = a_pass(two_jobs(), FakeActuator(), memory, {"a": 500}, bounds)
    assert report.requeue_at_seconds == START + looks_after


BY_DEFAULT = Bounds("Auto", 25, 64_000, cooldown_seconds=120, max_step_ratio=2.0, min_change_ratio=0.1)


@pytest.mark.parametrize("level", [1.0, None], ids=["reports", "has gone silent"])
def test_from_the_floor_to_the_even_share_takes_one_pass_under_the_default_behaviour(level: float | None) -> None:
    squeezed = JobMemory(
        levels=Levels(series="loss"),
        decided=PolicyMemory(wanted_cores=0.025),
        original=CpuAllocation(2000, 1000),
        last_resized_at_seconds=START - 20.0,
    )
    memory = FakeMemory(MemoryState({"a": squeezed}))
    jobs = [a_job("a", limit=25, level=level), *(a_job(uid, limit=650) for uid in ("b", "c", "d"))]
    actuator = FakeActuator()
    a_pass(a_snapshot(jobs, [a_node(cpu_cores=2.0)]), actuator, memory, {"a": 2000}, BY_DEFAULT)
    assert [(resize.job_uid, resize.to_millicores) for resize in actuator.done] == [("a", 500)]


def leaving() -> ClusterSnapshot:
    """Job a, which has run for a while, is to go to another node."""
    snapshot = two_jobs()
    jobs = tuple(job.altered(started_at_seconds=START - 100.0) for job in snapshot.jobs)
    return replace(snapshot, jobs=jobs, moving=(MoveUnderWay("a", "n1", "n2", START - 3.0, "saving and ending"),))


def test_a_job_that_is_on_no_node_while_it_is_moved_is_not_forgotten() -> None:
    away = replace(leaving(), jobs=leaving().jobs[1:])
    memory = FakeMemory()
    a_pass(leaving(), FakeActuator(), memory, {"b": 500})
    before = memory.state.jobs["a"]
    report = a_pass(away, FakeActuator(), memory, {"b": 500})
    assert memory.state.jobs["a"] == before
    assert before.moves[-1].node == "n2"
    assert report.decisions is not None
    assert set(report.decisions.memory.jobs) == {"a", "b"}


class Places:
    """A policy that places nothing, and keeps what it was shown."""

    def decide(self, snapshot: ClusterSnapshot, memory: MemoryState) -> Decisions:
        self.arriving = memory.arriving
        return Decisions("x", (), {job.uid: "because" for job in snapshot.jobs}, memory)


def a_pass_with_an_arrival(policy: Places) -> PassReport:
    arrival = Arrival("new", "new", "team", START, objectives=Objectives(qoe_seconds=1.0))
    seen = replace(a_snapshot([a_job("a")]), waiting=(arrival,))
    stored = FakeMemory(MemoryState({"new": JobMemory(levels=Levels(first=2.0))}))
    return pass_over(seen, policy, memory=stored)


def test_a_policy_sees_what_is_known_of_an_arrival_that_has_run_before() -> None:
    policy = Places()
    a_pass_with_an_arrival(policy)
    assert policy.arriving == {"new": JobMemory(levels=Levels(first=2.0))}


def test_a_pass_counts_promises_and_reports_how_each_job_stands_whatever_the_policy_does() -> None:
    asked = Objectives(qoe_seconds=1.0, target_level=0.5)
    memory, reports = FakeMemory(), []
    for number in range(8):
        at = START + 20.0 * number
        running = a_job("a", level=0.4, at=at, cpu_seconds=20.0 * number).altered(
            steps_total=10.0 * number, objectives=asked
        )
        reports.append(a_pass(a_snapshot([running, a_job("b", at=at)], at=at), FakeActuator(), memory, {}))
    reached = [report.objective_statuses["a"].target for report in reports]
    assert (reached[0], reached[-1]) == (TargetStatus(None, False), TargetStatus(None, True))
    missed = [report.objective_statuses["a"].qoe for report in reports]
    assert missed[0] == QoeStatus(1.0)
    assert missed[-1] == QoeStatus(1.0, 2.0, -1.0, "B", missed=True)
    assert [each.missed for each in missed if each is not None] == [False] * 3 + [True] * 5
    assert all("b" not in report.objective_statuses for report in reports)
    assert reports[-1].by_job["a"].objective_status == reports[-1].objective_statuses["a"]


def sized_job(request_mib: int) -> Job:
    """A converged job that uses 100 MiB."""
    memory = MemoryAllocation(request_mib * 2**20, 2**30)
    made = a_job("a").altered(memory=memory, memory_request_bytes=float(request_mib * 2**20))
    return made.altered(usage=Usage(START, 0.0, 100.0 * 2**20))


def memory_pass(job: Job, actuator: FakeActuator, memory: FakeMemory) -> PassReport:
    bounds = replace(OPEN, memory="Requests")
    return pass_over(a_snapshot([job]), Wants({}), actuator, memory, bounds)


def test_a_lowered_memory_request_is_stored_before_it_is_written_and_reported() -> None:
    use = MemoryUse(START - 15.0, 100.0 * 2**20, 100.0 * 2**20, samples=10)
    memory = FakeMemory(MemoryState({"a": JobMemory(decided=PolicyMemory(job_class="CL"), memory_use=use)}))

    class Checks(FakeActuator):
        def carry_out(self, decision: Decision) -> Outcome[Decision]:
            stored = memory.state.jobs["a"]
            assert (stored.original, stored.original_memory) == (CpuAllocation(None, 1000), sized_job(512).memory)
            return super().carry_out(decision)

    actuator = Checks()
    report = memory_pass(sized_job(512), actuator, memory)
    assert [(each.bound, each.to_bytes // 2**20) for each in actuator.sized] == [("request", 120)]
    assert [each.result for each in report.results.of(ResizeMemory)] == ["applied"]
    assert "1.2 times its peak" in report.by_job["a"].message_of(ResizeMemory)
    assert (report.count("applied"), report.requeue_at_seconds) == (1, START + 20.0)
    assert memory.state.jobs["a"].memory_resizes.at_seconds == START

    back = memory.state.jobs["a"].with_decided(job_class="NL")
    memory.state = MemoryState({"a": back})
    memory_pass(sized_job(120), actuator, memory)
    assert [each.to_bytes // 2**20 for each in actuator.sized] == [120, 512]
    assert memory.state.jobs["a"].original_memory == sized_job(512).memory
