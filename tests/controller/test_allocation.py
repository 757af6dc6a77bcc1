"""From a policy's limits to what is written: hard ceilings, or shares that act like soft limits."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.worlds import a_job, a_node, a_snapshot

from slopewise.allocation import (
    accepted_millicores,
    actual_millicores,
    allotted_cores,
    capacity_cores,
    down_an_order,
    even_shares,
    promisable,
    resizes,
    share_ratio,
    targets_millicores,
    water_filling,
    weight_per_core_millicores,
)
from slopewise.model import CpuAllocation, CpuControl, JobMemory, JobState

CORES = st.floats(0.01, 64)


@pytest.mark.parametrize(
    ("limits", "capacity", "expected"),
    [
        ([1.0, 0.25], 1.0, [0.75, 0.25]),  # thesis 6.1.3
        ([1.0, 1.0, 1.0], 1.0, [1 / 3, 1 / 3, 1 / 3]),
        ([0.2, 0.2], 1.0, [0.5, 0.5]),  # what no job claims is shared in proportion
        ([], 1.0, []),
    ],
)
def test_soft_limits_share_a_node_evenly_up_to_each_limit(
    limits: list[float], capacity: float, expected: list[float]
) -> None:
    assert even_shares(limits, capacity) == pytest.approx(expected)


@given(st.lists(CORES, min_size=1, max_size=12), CORES)
def test_shares_use_the_whole_node_and_a_larger_limit_never_gets_less(limits: list[float], capacity: float) -> None:
    shares = even_shares(limits, capacity)
    assert sum(shares) == pytest.approx(capacity)
    ordered = [share for _, share in sorted(zip(limits, shares, strict=True))]
    assert all(small <= large * (1 + 1e-9) for small, large in pairwise(ordered))


class TestWaterFilling:
    @pytest.mark.parametrize(
        ("caps", "capacity", "weights", "expected"),
        [
            ([0.19, 1.0], 1.0, [1.0, 1.0], [0.19, 0.81]),  # what one job cannot use goes to the others
            ([1.0, 1.0], 1.0, [1.0, 0.25], [0.8, 0.2]),
            ([0.5, 1.0], 4.0, [1.0, 9.0], [0.5, 1.0]),
            ([2.0, 0.5, 0.1], 2.0, None, [1.4, 0.5, 0.1]),
            ([], 1.0, [], []),
            ([1.0, 2.0], -0.1, None, [0.0, 0.0]),
        ],
    )
    def test_shares_follow_the_weights_up_to_each_cap(
        self, caps: list[float], capacity: float, weights: list[float] | None, expected: list[float]
    ) -> None:
        assert water_filling(caps, capacity, weights) == pytest.approx(expected)

    @given(st.lists(st.tuples(st.floats(0.01, 64), st.floats(0.1, 1e3)), min_size=1, max_size=12), st.floats(0.1, 64))
    def test_never_over_capacity_nor_a_cap_and_nothing_left_that_someone_wants_more_than_others(
        self, jobs: list[tuple[float, float]], capacity: float
    ) -> None:
        caps, weights = [cap for cap, _ in jobs], [weight for _, weight in jobs]
        shares = water_filling(caps, capacity, weights)
        assert all(0 <= share <= cap for share, cap in zip(shares, caps, strict=True))
        assert sum(shares) == pytest.approx(min(capacity, sum(caps)))
        assert sum(shares) <= capacity * (1 + 1e-12)
        per_weight = [share / weight for share, weight in zip(shares, weights, strict=True)]
        for mine, share, cap in zip(per_weight, shares, caps, strict=True):
            assert share >= cap * (1 - 1e-9) or mine >= max(per_weight) * (1 - 1e-6)


def test_down_an_order_each_group_shares_what_those_before_leave() -> None:
    given_cores = dict.fromkeys("abc", 0.1)
    most = dict.fromkeys("abc", 1.0)
    assert down_an_order(given_cores, ["a", "b", "c"], most, 1.5) == pytest.approx({"a": 1.0, "b": 0.4, "c": 0.1})
    assert down_an_order(given_cores, ["a", "bc"], most, 1.6) == pytest.approx({"a": 1.0, "b": 0.3, "c": 0.3})


@pytest.mark.parametrize(
    ("own", "more", "limits", "requests"),
    [
        (CpuAllocation(None, 0), {"pod_level": CpuAllocation(1500, 250)}, 1500, 250),
        (CpuAllocation(1000, 100), {"pod_level": CpuAllocation(1500, 250)}, 1000, 100),
        (CpuAllocation(3000, 100), {"pod_level": CpuAllocation(1500, 250)}, 1500, 100),
        (CpuAllocation(None, 100), {"pod_level": CpuAllocation(None, 250)}, 2000, 100),
        (CpuAllocation(None, 1000), {}, 2000, 1000),
        (CpuAllocation(300, 700), {"actual": CpuAllocation(1500, 400)}, 300, 700),
    ],
    ids=["the pod's alone", "less than the pod's", "more than the pod's", "a request of the pod", "no limit", "other"],
)
def test_no_limit_is_the_whole_node_what_is_set_for_the_pod_bounds_its_container_and_other_may_be_in_effect(
    own: CpuAllocation, more: dict[str, CpuAllocation], limits: int, requests: int
) -> None:
    job, node = a_job("j").altered(allocation=own, **more), a_node(cpu_cores=2)
    assert (accepted_millicores(job, node, "limits"), accepted_millicores(job, node, "requests")) == (limits, requests)
    in_effect = (actual_millicores(job, node, "limits"), actual_millicores(job, node, "requests"))
    assert in_effect == ((1500, 400) if "actual" in more else (limits, requests))


def test_requests_keep_the_sum_that_the_jobs_had_before_the_first_change() -> None:
    jobs = [a_job("a", request=1500), a_job("b", request=100)]
    remembered = {uid: JobMemory(original=CpuAllocation(None, 1000)) for uid in ("a", "b")}
    targets = targets_millicores(jobs, [1.0, 0.25], remembered, a_node(), "requests")
    assert targets == [1500, 500]


def test_the_weight_of_a_core_is_of_what_the_jobs_came_with() -> None:
    jobs = [a_job("a", request=1500), a_job("b", request=100)]
    remembered = {"a": JobMemory(original=CpuAllocation(None, 1000))}
    assert weight_per_core_millicores(jobs, remembered, a_node(cpu_cores=4)) == 275.0


def test_a_job_without_a_limit_keeps_its_weight_and_the_others_share_the_rest() -> None:
    jobs = [a_job(uid, request=now) for uid, now in (("a", 1500), ("b", 500), ("silent", 1000))]
    remembered = {uid: JobMemory(original=CpuAllocation(None, 1000)) for uid in ("a", "b")}
    assert targets_millicores(jobs, [1.0, 0.25, None], remembered, a_node(), "requests") == [1250, 750, 1000]
    assert targets_millicores(jobs, [1.0, 0.25, None], remembered, a_node(), "limits") == [1000, 250, 1000]
    assert share_ratio(jobs[2:], jobs, remembered) == pytest.approx(1 / 3)


@pytest.mark.parametrize(("control", "target"), [("limits", 400), ("requests", 700)])
def test_a_job_that_was_changed_and_has_no_limit_any_more_gets_back_what_it_came_with(
    control: CpuControl, target: int
) -> None:
    job, remembered = a_job("a", limit=2000, request=100), {"a": JobMemory(original=CpuAllocation(400, 700))}
    targets = targets_millicores([job], [None], remembered, a_node(cpu_cores=2), control)
    (change,) = resizes([job], [None], targets, {"a": "silent"}, a_node(cpu_cores=2), control)
    assert (change.to_millicores, change.is_rollback) == (target, True)


@given(st.lists(st.tuples(CORES, st.integers(1, 4000), st.booleans()), min_size=1, max_size=8), CORES)
def test_weights_add_up_to_what_the_jobs_came_with_also_where_some_keep_their_own(
    claims: list[tuple[float, int, bool]], cores: float
) -> None:
    jobs = [a_job(str(index), request=request) for index, (_, request, _) in enumerate(claims)]
    limits = [limit if limited else None for limit, _, limited in claims]
    targets = targets_millicores(jobs, limits, {}, a_node(cpu_cores=cores), "requests")
    assert sum(targets) == pytest.approx(sum(request for _, request, _ in claims), abs=1.5 * len(jobs))
    assert all(target == request for target, (_, request, limited) in zip(targets, claims, strict=True) if not limited)


def test_what_a_job_may_use_is_its_limit_or_its_share_of_the_node_and_nothing_once_it_has_ended() -> None:
    ended = a_job("c", request=9000, state=JobState.FAILED)
    snapshot = a_snapshot([a_job("a", limit=500, request=1500), a_job("b", request=500), ended], [a_node(cpu_cores=2)])
    assert allotted_cores(snapshot, "limits") == {"a": 0.5, "b": 2.0, "c": 0.0}
    assert allotted_cores(snapshot, "requests") == {"a": 1.5, "b": 0.5, "c": 0.0}
    assert allotted_cores(snapshot, "requests", {"a": 500}) == {"a": 1.0, "b": 1.0, "c": 0.0}


def test_a_job_that_is_where_it_should_be_is_not_resized() -> None:
    jobs = [a_job("a", limit=500), a_job("b", limit=500)]
    changes = resizes(jobs, [0.5, 0.75], [500, 750], {"a": "", "b": "more"}, a_node(), "limits")
    assert [(c.job_uid, c.from_millicores, c.to_millicores, c.reason) for c in changes] == [("b", 500, 750, "more")]


@pytest.mark.parametrize(
    ("available", "capacity"),
    [(None, 4.0), (2.5, 2.5), (0.0, 0.001), (-3.0, 0.001), (9.0, 4.0), (float("nan"), 4.0), (float("inf"), 4.0)],
)
def test_a_node_promises_what_others_leave_all_of_it_where_that_is_unknown_and_never_nothing(
    available: float | None, capacity: float
) -> None:
    node = a_node(cpu_cores=4.0, available_cores=available)
    assert capacity_cores(node) == capacity
    assert promisable(node).cpu_cores == capacity
