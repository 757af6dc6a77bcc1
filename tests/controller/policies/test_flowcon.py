"""FlowCon's readings and test vectors: what Algorithm 1 and the listeners do to one node."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from support.worlds import START, a_job, a_node, a_snapshot, classes, known, remembering

from slopewise.model import ClusterSnapshot, Decisions, Growth, Job, JobMemory, MemoryState, PolicyMemory
from slopewise.policies import Setting
from slopewise.policies.flowcon import COMPLETING, NEW, WATCHING, Parameters, Policy

ITVAL = 20.0
SLOW, FAST = 0.0005, 0.02  # per second; α = 0.05 per minute is 0.00083 per second


def decide(snapshot: ClusterSnapshot, memory: MemoryState, control: str = "limits", **parameters: object) -> Decisions:
    policy = Policy(Parameters(**parameters), Setting(ITVAL, control))  # type: ignore[arg-type]
    return policy.decide(snapshot, memory)


def limits(decisions: Decisions) -> dict[str, float | None]:
    return {uid: job.decided.wanted_cores for uid, job in decisions.memory.jobs.items()}


def test_vector_a_an_old_completing_job_gets_a_quarter_and_the_newcomer_the_whole_node() -> None:
    memory = remembering(
        {"old": known(efficiency=0.0, job_class=COMPLETING, wanted=1.0), "new": known()},
        evaluated_at=START - 5,
        on_node=["old"],
    )
    decisions = decide(a_snapshot([a_job("old"), a_job("new")]), memory, beta=2)
    assert limits(decisions) == {"old": 0.25, "new": 1.0}
    assert classes(decisions) == {"old": COMPLETING, "new": NEW}


def test_vector_b_growth_below_alpha_twice_goes_from_new_to_watching_to_completing() -> None:
    jobs = [a_job("slow"), a_job("fast")]
    memory = remembering(
        {"slow": known(efficiency=SLOW, job_class=NEW), "fast": known(efficiency=FAST, job_class=NEW)},
        evaluated_at=START - ITVAL,
    )
    first = decide(a_snapshot(jobs), memory)
    assert classes(first) == {"slow": WATCHING, "fast": NEW}

    later = START + ITVAL
    measured = {
        uid: known(efficiency=eff, measured_at=later, job_class=first.memory.jobs[uid].decided.job_class, wanted=1.0)
        for uid, eff in (("slow", SLOW), ("fast", FAST))
    }
    second = decide(
        a_snapshot([a_job("slow", at=later), a_job("fast", at=later)], at=later),
        MemoryState(measured, first.memory.nodes),
    )
    assert classes(second) == {"slow": COMPLETING, "fast": NEW}


def test_vector_c_all_completing_frees_every_limit_and_doubles_the_interval_until_an_arrival_resets_it() -> None:
    memory = remembering(
        {uid: known(efficiency=SLOW, job_class=COMPLETING, wanted=0.3) for uid in ("a", "b")},
        evaluated_at=START - ITVAL,
    )
    backed_off = decide(a_snapshot([a_job("a"), a_job("b")]), memory)
    assert limits(backed_off) == {"a": 1.0, "b": 1.0}
    assert backed_off.memory.nodes["n1"].interval_seconds == 2 * ITVAL

    soon = START + 3
    with_newcomer = {**backed_off.memory.jobs, "c": known()}
    arrival = decide(
        a_snapshot([a_job("a", at=soon), a_job("b", at=soon), a_job("c", at=soon, started_at=soon)], at=soon),
        MemoryState(with_newcomer, backed_off.memory.nodes),
    )
    assert arrival.memory.nodes["n1"].interval_seconds == ITVAL
    assert classes(arrival)["c"] == NEW


@pytest.mark.parametrize(
    ("jobs", "interval", "ended", "after"),
    [
        ({"a": (FAST, COMPLETING), "b": (SLOW, COMPLETING)}, 80.0, {"a": NEW, "b": COMPLETING}, ITVAL),  # grows again
        ({"a": (SLOW, COMPLETING)}, 4 * ITVAL, {"a": COMPLETING}, 4 * ITVAL),  # the cap of the back-off
        ({"a": (FAST, NEW), "b": (FAST, NEW)}, 10.0, {"a": NEW, "b": NEW}, ITVAL),  # after an arrival's short one
        ({"a": (FAST, NEW), "b": (SLOW, COMPLETING)}, 80.0, {"a": NEW, "b": COMPLETING}, ITVAL),  # a had restarted
        ({"a": (FAST, NEW), "b": (FAST, NEW)}, 60.0, {"a": NEW, "b": NEW}, ITVAL),  # the user's was longer before
    ],
)
def test_the_interval_after_a_look(
    jobs: dict[str, tuple[float, str]], interval: float, ended: dict[str, str], after: float
) -> None:
    remembered = {uid: known(efficiency=each[0], job_class=each[1]) for uid, each in jobs.items()}
    memory = remembering(remembered, evaluated_at=START - interval, interval=interval)
    decisions = decide(a_snapshot([a_job(uid) for uid in jobs]), memory, max_interval_ratio=4)
    assert classes(decisions) == ended
    assert decisions.memory.nodes["n1"].interval_seconds == after


def test_a_scrape_that_is_missed_by_all_ends_no_back_off() -> None:
    jobs = {uid: known(efficiency=SLOW, job_class=COMPLETING) for uid in ("a", "b")}
    memory = remembering(jobs, evaluated_at=START - 80, interval=80.0)
    decisions = decide(a_snapshot([a_job(uid, level=None) for uid in jobs]), memory)
    assert decisions.memory.nodes["n1"].interval_seconds == 80.0


def test_limits_are_in_proportion_to_growth_with_a_floor_for_every_list() -> None:
    memory = remembering(
        {
            "fast": known(efficiency=0.09, job_class=NEW),
            "fair": known(efficiency=0.01, job_class=NEW),
            "done": known(efficiency=0.0, job_class=COMPLETING),
        },
        evaluated_at=START - ITVAL,
    )
    got = limits(decide(a_snapshot([a_job(u) for u in ("fast", "fair", "done")]), memory, beta=2))
    assert got["fast"] == pytest.approx(0.9)
    assert got["fair"] == pytest.approx(1 / 6)  # 0.01/0.10 = 0.1 is below 1/(2·3)
    assert got["done"] == pytest.approx(1 / 6)


def test_a_watching_job_keeps_its_limit_while_its_growth_still_counts_in_the_sum() -> None:
    memory = remembering(
        {
            "watched": known(efficiency=SLOW, measured_at=START - 1, job_class=WATCHING, wanted=0.42),
            "fast": known(efficiency=0.0015, measured_at=START - 1, job_class=NEW),
        },
        evaluated_at=START,
        on_node=["watched"],
    )
    decisions = decide(a_snapshot([a_job("watched"), a_job("fast")]), memory)
    assert limits(decisions)["watched"] == 0.42
    assert limits(decisions)["fast"] == pytest.approx(0.75)  # 0.0015 of 0.002


def test_an_event_recomputes_limits_but_reclassifies_only_what_was_measured_since_the_last_look() -> None:
    memory = remembering(
        {"a": known(efficiency=SLOW, measured_at=START - 10, job_class=NEW, wanted=1.0), "b": known()},
        evaluated_at=START - 10,
        on_node=["a"],
    )
    decisions = decide(a_snapshot([a_job("a"), a_job("b")]), memory)
    assert classes(decisions)["a"] == NEW
    assert decisions.memory.nodes["n1"].evaluated_at_seconds == START


@pytest.mark.parametrize(
    "broken", [{"finite": False}, {"restarted": True}, {"age": 60.0}, {"level": None}, {"samples": 1}]
)
def test_a_job_whose_growth_cannot_be_trusted_keeps_class_and_limit_and_leaves_the_sum(broken: dict[str, Any]) -> None:
    memory = remembering(
        {
            "odd": known(efficiency=0.5, job_class=NEW, wanted=0.3),
            "fast": known(efficiency=FAST, job_class=NEW, wanted=0.7),
        },
        evaluated_at=START - ITVAL,
    )
    decisions = decide(a_snapshot([a_job("odd", **broken), a_job("fast")]), memory)
    assert limits(decisions) == {"odd": 0.3, "fast": 1.0}
    assert classes(decisions)["odd"] == NEW
    assert "how fast it improves is not known" in decisions.reasons["odd"]


def both_converged(**more: object) -> MemoryState:
    converged = {uid: known(efficiency=SLOW, job_class=COMPLETING, wanted=0.2) for uid in ("a", "b")}
    return remembering({**converged, **more}, evaluated_at=START - ITVAL)  # type: ignore[dict-item]


@pytest.mark.parametrize("control", ["limits", "requests"])
@pytest.mark.parametrize(
    ("broken", "why"), [({"finite": False}, "has had no finite loss yet"), ({"level": None}, "reports no loss")]
)
def test_a_job_without_a_loss_keeps_its_cpu_and_is_left_out(broken: dict[str, Any], why: str, control: str) -> None:
    odd = a_job("odd", limit=300, **broken)
    world = (
        a_snapshot([a_job("a"), a_job("b"), odd]),
        both_converged(odd=JobMemory(decided=PolicyMemory(wanted_cores=0.5))),
    )
    decisions = decide(*world, control=control)
    assert limits(decisions)["odd"] is None
    assert decisions.reasons["odd"] == f"unchanged: {why}, keeps its original CPU"
    assert decisions.resizes == ()
    assert decisions.memory.nodes["n1"].interval_seconds == 2 * ITVAL, "the others are all of the node's jobs"


def test_a_job_is_a_newcomer_for_three_intervals_from_its_first_loss_and_then_shares_evenly_without_a_reading() -> None:
    late = a_job("late", started_at=START - 1000)

    def after(seconds: float, **more: Any) -> float | None:
        listed = known(class_since_seconds=START - seconds, job_class=NEW, wanted=1.0, **more)
        return limits(decide(a_snapshot([a_job("a"), a_job("b"), late]), both_converged(late=listed)))["late"]

    def at_first_loss() -> dict[str, float | None]:
        return limits(decide(a_snapshot([a_job("a"), a_job("b"), late]), both_converged(late=known())))

    assert at_first_loss() == pytest.approx({"a": 1 / 6, "b": 1 / 6, "late": 1.0})
    assert after(2 * ITVAL) == 1.0
    uncounted = Growth(START, ITVAL, 0.01, None)
    assert after(2 * ITVAL, previous_growth=None) == 1.0
    unknown = replace(known(job_class=NEW, wanted=1.0), growth=uncounted)
    decisions = decide(a_snapshot([a_job("a"), a_job("b"), late]), both_converged(late=unknown))
    assert limits(decisions)["late"] == pytest.approx(1 / 3)
    assert decisions.reasons["late"].startswith(
        "still learning: how fast it improves is not known (its CPU is not counted), limit 0.333"
    )


def test_a_job_that_waits_for_a_long_time_has_an_even_share_and_says_what_it_used() -> None:
    waits = [Growth(START - seconds, ITVAL, 0.0, 0.001) for seconds in (0, ITVAL)]
    idle = replace(known(job_class=NEW, wanted=1.0), growth=waits[0], previous_growth=waits[1])
    decisions = decide(a_snapshot([a_job("a"), a_job("b"), a_job("idle")]), both_converged(idle=idle))
    assert limits(decisions)["idle"] == pytest.approx(1 / 3)
    assert "not known (it used 0.001 cores, so it waits)" in decisions.reasons["idle"]


@pytest.mark.parametrize(("had", "expected"), [(1.0, 0.5), (0.2, 0.2)])
def test_a_job_that_has_diverged_has_an_even_share_at_most(had: float, expected: float) -> None:
    memory = remembering(
        {"lost": known(efficiency=0.5, job_class=NEW, wanted=had), "fast": known(efficiency=FAST, job_class=NEW)},
        evaluated_at=START - ITVAL,
    )
    decisions = decide(a_snapshot([a_job("lost", finite=False), a_job("fast")]), memory)
    assert limits(decisions)["lost"] == expected
    assert "not known (its loss is not finite)" in decisions.reasons["lost"]


def test_alpha_per_second_makes_the_same_growth_a_slow_one() -> None:
    memory = remembering({"a": known(efficiency=FAST, job_class=NEW)}, evaluated_at=START - ITVAL)
    snapshot = a_snapshot([a_job("a")])
    assert classes(decide(snapshot, memory, alpha_per="interval"))["a"] == NEW
    assert classes(decide(snapshot, memory, alpha_per="second"))["a"] == WATCHING


def test_the_class_that_another_policy_gave_a_job_counts_as_new() -> None:
    memory = remembering({"a": known(efficiency=SLOW, job_class="CC"), "b": known(job_class="urgent")})
    assert classes(decide(a_snapshot([a_job("a"), a_job("b")]), memory)) == {"a": WATCHING, "b": NEW}


def test_nodes_are_looked_at_one_by_one() -> None:
    jobs = {"a": known(efficiency=FAST, job_class=NEW), "b": known(efficiency=SLOW, job_class=NEW)}
    first = remembering({"a": jobs["a"]}, evaluated_at=START - ITVAL, node="n1")
    second = remembering({"b": jobs["b"]}, evaluated_at=START - 1, node="n2")
    memory = MemoryState(jobs, {**first.nodes, **second.nodes})
    snapshot = a_snapshot([a_job("a"), a_job("b", node="n2")], [a_node("n1"), a_node("n2", cpu_cores=4)])
    decisions = decide(snapshot, memory)
    assert decisions.memory.nodes["n1"].evaluated_at_seconds == START
    assert decisions.memory.nodes["n2"] == memory.nodes["n2"]


def test_a_reason_says_what_its_class_means_and_what_is_given_in_the_unit_that_is_written() -> None:
    jobs = [a_job("a", request=1000), a_job("b", request=1000)]
    memory = remembering(
        {
            "a": known(efficiency=0.005, job_class=NEW, wanted=1.0),
            "b": known(efficiency=0.015, job_class=NEW, wanted=1.0),
        },
        evaluated_at=START - ITVAL,
    )
    hard = decide(a_snapshot(jobs, [a_node(cpu_cores=2.0)]), memory)
    said = "still learning: improves by 0.15 per minute at full speed (≥ alpha 0.05)"
    assert hard.reasons["a"] == f"{said}, limit 0.5 of 2 cores"
    soft = decide(a_snapshot(jobs, [a_node(cpu_cores=2.0)]), memory, control="requests", beta=1000)
    assert soft.reasons["a"] == f"{said}, weight 500 of 2000, as if limited to 0.5 of 2 cores"
    assert {each.job_uid: (each.to_millicores, each.reason) for each in soft.resizes} == {
        "a": (500, soft.reasons["a"]),
        "b": (1500, soft.reasons["b"]),
    }


def class_of(job: Job, growth: Growth, *, cores: float, interval: float) -> str | None:
    policy = Policy(Parameters(), Setting(interval, "limits"))
    memory = remembering({"j": known(job_class=NEW)}, evaluated_at=START - interval, interval=interval)
    memory = MemoryState({"j": replace(memory.jobs["j"], growth=growth)}, memory.nodes)
    decisions = policy.decide(a_snapshot([job], [a_node(cpu_cores=cores)]), memory)
    return decisions.memory.jobs["j"].decided.job_class


@pytest.mark.parametrize("interval", [20.0, 60.0])
@pytest.mark.parametrize("cores", [2.0, 64.0])
@pytest.mark.parametrize(
    ("useful", "used", "progress_a_minute", "expected"),
    [
        (1.0, 1.0, 0.005, WATCHING),  # half a per cent a minute, whatever 64 cores would make of it
        (1.0, 0.5, 0.03, NEW),  # a core would give it twice that
        (None, 1.0, 0.06, NEW),
        (None, 2.0, 0.04, WATCHING),  # two cores were used for it
        (0.2, 0.2, 0.02, NEW),  # it waits for most of the time; a whole core of such progress is 0.1
    ],
)
def test_alpha_means_the_same_on_any_node_and_with_any_interval(
    useful: float | None, used: float, progress_a_minute: float, expected: str, cores: float, interval: float
) -> None:
    per_second = progress_a_minute / 60
    growth = Growth(START, interval, per_second, used, {"cpu": per_second / (used / cores)})
    assert class_of(a_job("j", useful_cores=useful), growth, cores=cores, interval=interval) == expected


def test_the_interval_of_an_arrival_counts_from_its_start_and_not_from_its_first_loss() -> None:
    """With scrapes of 5 s: its level is there 10 s later, and its first growth is due another 10 s later."""

    def interval_of(age: float) -> float:
        memory = remembering({"new": known()}, evaluated_at=START - age, on_node=[])
        decisions = decide(a_snapshot([a_job("new", started_at=START - age)]), memory)
        return decisions.memory.nodes["n1"].interval_seconds

    assert interval_of(10.0) == pytest.approx(10.0)
    assert interval_of(15.0) == ITVAL, "what is left is too short to measure growth over"
    assert interval_of(1000.0) == ITVAL
