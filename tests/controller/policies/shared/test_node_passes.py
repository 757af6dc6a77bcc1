"""What policies with one look per node share: when a node is due, what is remembered, and what is asked for again."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from support.worlds import START, a_job, a_node, a_snapshot, known

from slopewise.estimators import measurements
from slopewise.estimators.growth import Measuring
from slopewise.model import (
    CpuAllocation,
    CpuControl,
    Decisions,
    Ends,
    Job,
    JobMemory,
    JobState,
    Levels,
    MemoryState,
    Node,
    NodeMemory,
    PolicyMemory,
    Unmet,
)
from slopewise.policies import Setting, find
from slopewise.policies.shared.node_passes import NodeDecision, Verdict, decide_by_node, is_due
from slopewise.policies.shared.silence import without_a_loss, without_decision

LAST = NodeMemory(frozenset(["a", "b"]), START - 10, 20.0)


class Looks:
    """Answers every look with the same verdicts, and remembers who was looked at."""

    def __init__(self, **verdicts: Verdict) -> None:
        self.verdicts = verdicts
        self.seen: list[tuple[str, list[str], NodeMemory | None]] = []

    def __call__(self, node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
        self.seen.append((node.name, [job.uid for job in jobs], last))
        return NodeDecision({job.uid: self.verdicts[job.uid] for job in jobs}, 30.0)


def decide(looks: Looks, jobs: Sequence[Job], memory: MemoryState, control: CpuControl = "limits") -> Decisions:
    snapshot = a_snapshot(jobs, [a_node(cpu_cores=2.0)])
    return decide_by_node("test", snapshot, memory, control, looks)


def targets(decisions: Decisions) -> dict[str, int]:
    return {resize.job_uid: resize.to_millicores for resize in decisions.resizes}


@pytest.mark.parametrize(
    ("last", "uids", "seconds", "due"),
    [
        (None, "ab", 0, True),
        (LAST, "ab", 0, False),
        (LAST, "ab", 8, False),
        (LAST, "ab", 9, True),  # a tick may come 5 % early
        (LAST, "ab", 10, True),
        (LAST, "abc", 0, True),
        (LAST, "a", 0, True),
        (LAST, "ac", 0, True),  # one came and one went: as many as before, and another set
    ],
)
def test_a_node_is_due_after_its_interval_and_when_its_set_of_jobs_changed(
    last: NodeMemory | None, uids: str, seconds: float, due: bool
) -> None:
    assert is_due(last, [a_job(uid) for uid in uids], START + seconds) is due


def test_a_look_is_carried_out_explained_and_remembered() -> None:
    looks = Looks(
        a=Verdict(0.5, "slow", "because", state="[1]", marks=frozenset(["seen"])), b=Verdict(1.5, "fast", "why")
    )
    memory = MemoryState({"a": known(marks=frozenset(["old"]), job_class="fast"), "b": known(job_class="fast")})
    decisions = decide(looks, [a_job("b"), a_job("a")], memory)
    assert looks.seen == [("n1", ["a", "b"], None)]  # in order of uid, whatever the order in which they were found
    assert targets(decisions) == {"a": 500, "b": 1500}
    assert decisions.reasons == {"a": "because, limit 0.5 of 2 cores", "b": "why, limit 1.5 of 2 cores"}
    after = decisions.memory.jobs["a"]
    assert (after.decided.job_class, after.decided.class_since_seconds, after.decided.wanted_cores) == (
        "slow",
        START,
        0.5,
    )
    assert (after.decided.state, after.decided.marks) == ("[1]", frozenset({"old", "seen"}))
    assert decisions.memory.jobs["b"].decided.class_since_seconds is None  # its class did not change
    assert decisions.memory.nodes == {"n1": NodeMemory(frozenset(["a", "b"]), START, 30.0)}


def test_between_two_looks_the_policy_is_not_asked_and_what_is_not_there_yet_is_asked_for_again() -> None:
    looks = Looks()
    memory = MemoryState({"a": known(job_class="slow", wanted=0.5), "b": known(job_class="alone")}, {"n1": LAST})
    decisions = decide(looks, [a_job("a"), a_job("b", limit=700)], memory)
    assert looks.seen == []
    assert targets(decisions) == {"a": 500}
    assert decisions.reasons == {
        "a": "slow: its CPU is decided again in 10s, limit 0.5 of 2 cores",
        "b": "alone: its CPU is decided again in 10s",
    }
    assert decisions.memory == memory


NO_LIMIT = Verdict(None, "known", "kept")


@pytest.mark.parametrize(
    ("verdicts", "jobs", "wanted", "control", "expected"),
    [
        ({"a": NO_LIMIT, "b": NO_LIMIT}, [a_job("a"), a_job("b", limit=300)], 0.5, "limits", {"a": 500}),
        ({"a": NO_LIMIT}, [a_job("a", limit=100)], 8.0, "limits", {"a": 2000}),  # from a larger node: cut to this one
        ({"a": NO_LIMIT, "b": NO_LIMIT}, [a_job("a", request=100), a_job("b")], None, "requests", {}),
        # it keeps its weight beside those that have a limit
        (
            {"a": Verdict(1 / 3, "known", "slow"), "b": NO_LIMIT, "c": Verdict(4 / 3, "known", "fast")},
            [a_job(uid) for uid in "abc"],
            None,
            "requests",
            {"a": 500, "c": 1500},
        ),
    ],
)
def test_a_job_without_a_limit_keeps_what_it_was_to_have_or_is_left_alone(
    verdicts: dict[str, Verdict], jobs: list[Job], wanted: float | None, control: CpuControl, expected: dict[str, int]
) -> None:
    memory = MemoryState({uid: known(wanted=wanted if uid == "a" else None) for uid in verdicts})
    decisions = decide(Looks(**verdicts), jobs, memory, control)
    assert targets(decisions) == expected
    if "b" in verdicts:
        assert decisions.memory.jobs["b"].decided.wanted_cores is None
        assert decisions.reasons["b"] == "kept"


def a_silent_job(uid: str = "silent", **more: object) -> Job:
    return a_job(uid, level=None, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(("control", "cores"), [("requests", 1.0), ("limits", 1.5)])
def test_a_silent_job_is_left_alone_and_the_policy_sees_what_it_leaves(control: CpuControl, cores: float) -> None:
    seen: list[float] = []

    def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
        seen.append(node.cpu_cores)
        return NodeDecision({job.uid: Verdict(0.5, "known", "why") for job in jobs}, 30.0)

    jobs = [a_job("a"), a_job("b"), a_silent_job(request=1000)]
    memory = MemoryState({"a": known(), "b": known(), "silent": JobMemory()})
    decisions = decide_by_node("test", a_snapshot(jobs, [a_node(cpu_cores=1.5)]), memory, control, decide_node)
    assert seen == [pytest.approx(cores)]
    assert "silent" not in targets(decisions)
    assert decisions.reasons["silent"] == "unchanged: reports no loss, keeps its original CPU"
    assert decisions.memory.jobs["silent"] == JobMemory()
    assert decisions.memory.nodes["n1"].job_uids == {"a", "b", "silent"}


def test_an_expected_end_is_forgotten_with_silence_and_with_the_next_decision() -> None:
    before = known(job_class="slow", wanted=0.5).with_decided(ends=Ends(START + 60.0, START + 50.0, START + 90.0))
    memory = MemoryState(
        {"a": before, "silent": before.altered(levels=before.levels.altered(first=None))}, {"n1": LAST}
    )
    after = decide(Looks(a=Verdict(0.5, "slow", "why")), [a_job("a"), a_silent_job()], memory).memory.jobs
    assert (after["a"].decided.ends, after["silent"].decided.ends) == (None, None)


def test_a_policy_that_keeps_promises_is_handed_no_more_than_silent_jobs_leave_under_hard_limits() -> None:
    def decide_node(node: Node, jobs: Sequence[Job], last: NodeMemory | None) -> NodeDecision:
        assert node.cpu_cores == pytest.approx(0.7 if jobs[0].uid == "a" else 1.0)
        return NodeDecision({job.uid: Verdict(0.5, "known", "why") for job in jobs}, 30.0)

    jobs = [a_job("a"), a_silent_job(limit=300), a_job("b", node="n2"), a_silent_job("q", node="n2")]
    memory = MemoryState({job.uid: known() if job.evaluation else JobMemory() for job in jobs})
    snapshot = a_snapshot(jobs, [a_node("n1"), a_node("n2", cpu_cores=2.0)])
    decide_by_node("test", snapshot, memory, "limits", decide_node, reserves=True)


def test_a_job_that_has_stopped_reporting_for_long_gets_back_what_it_came_with() -> None:
    looks = Looks(b=Verdict(1.0, "known", "why"))
    remembered = known(
        levels=Levels("s", 1.0, 0.5, silent_since_seconds=START - 60.0),
        job_class="slow",
        wanted=0.1,
        original=CpuAllocation(None, 800),
    )
    decisions = decide(
        looks, [a_silent_job("a", request=100), a_job("b")], MemoryState({"a": remembered, "b": known()}), "requests"
    )
    (back,) = [resize for resize in decisions.resizes if resize.job_uid == "a"]
    assert (back.to_millicores, back.is_rollback) == (800, True)
    assert "no loss for 1m00s" in back.reason
    after = decisions.memory.jobs["a"]
    assert (after.decided.job_class, after.decided.wanted_cores) == (None, None)
    just_now = MemoryState({"a": known(levels=Levels("s", 1.0, 0.5, silent_since_seconds=START - 59.0))})
    still = decide(Looks(a=Verdict(1.5, "known", "why")), [a_silent_job("a")], just_now)
    assert targets(still) == {"a": 1500}, "it has only just stopped reporting"


def test_a_job_that_has_diverged_is_silent_only_once_it_reports_nothing_for_long() -> None:
    """It has reported NaN for ten minutes, and a scrape is missed; a minute later it has stopped."""
    memory, reasons = MemoryState({"a": known()}), []
    for at, level in ((0.0, math.nan), (600.0, math.nan), (620.0, None), (680.0, None)):
        job = a_job("a", at=START + at, level=level, finite=level is None)
        snapshot = a_snapshot([job], at=START + at)
        memory = measurements.measure(snapshot, memory, Measuring(20.0))
        reasons.append(without_a_loss(snapshot)(job, memory.jobs["a"]))
    assert reasons == [None, None, None, "no loss for 1m00s"]


def test_a_node_is_looked_at_again_when_a_job_begins_to_report() -> None:
    looks = Looks(a=Verdict(0.5, "slow", "why"), b=Verdict(1.0, "fast", "why"))
    memory = MemoryState({"a": known(job_class="slow", wanted=0.5), "b": known()}, {"n1": LAST})
    decide(looks, [a_job("a"), a_job("b")], memory)
    assert looks.seen == [("n1", ["a", "b"], NodeMemory(frozenset("a"), START - 10, 20.0))]


def test_a_job_that_has_ended_competes_with_none_and_is_not_forgotten() -> None:
    looks = Looks(a=Verdict(1.0, "known", "why"))
    jobs = [a_job("a"), a_job("done", state=JobState.FINISHED)]
    decisions = decide(looks, jobs, MemoryState({"a": known(), "done": known(job_class="old")}))
    assert set(decisions.reasons) == {"a"}
    assert decisions.memory.nodes["n1"].job_uids == {"a"}
    assert decisions.memory.jobs["done"].decided.job_class == "old"


def test_a_silent_job_loses_what_was_decided_of_it_but_neither_marks_nor_what_its_policy_keeps() -> None:
    marks = frozenset({"migrated"})
    decided = PolicyMemory("NL", 1.0, 0.5, marks, Unmet("n1", 2, 1.0), "[1]", Ends(1.0, 2.0, 3.0))
    assert without_decision(JobMemory(decided=decided)).decided == PolicyMemory(marks=marks, state="[1]")


@pytest.mark.parametrize("name", ["marginal", "flowcon", "flowcon2", "tradl", "dqoes", "deadline"])
def test_a_node_that_another_policy_let_rest_for_long_is_decided_within_the_longest_interval_of_this_one(
    name: str,
) -> None:
    """FlowCon had backed off to 80 minutes; its own longest interval is 320 s now, that of others 20 s."""
    jobs = {uid: known(job_class="CL", wanted=1.0) for uid in ("a", "b")}
    memory = MemoryState(jobs, {"n1": NodeMemory(frozenset(jobs), START - 320, 4800.0)})
    found = find(name)
    policy = found.build(found.parameters(), Setting(20.0, "requests"))
    decided = policy.decide(a_snapshot([a_job(uid) for uid in jobs]), memory)
    assert decided.memory.nodes["n1"].evaluated_at_seconds == START
