"""How a node's CPU is handed out: proportions within bounds, and down an order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.worlds import a_job, a_node

from slopewise.estimators.speed import stated_cores
from slopewise.policies.shared.shares import down_the_order, in_proportion, useful_cores

BOUNDED = st.tuples(st.floats(0, 10), st.floats(0, 1), st.floats(0, 5))


@pytest.mark.parametrize(
    ("weights", "least", "most", "expected"),
    [
        ([0.9, 0.1], [0.25, 0.25], [1, 1], [0.75, 0.25]),  # the least of one is taken from the others
        ([6, 3, 1], [0, 0, 0.4], [9, 9, 9], [0.4, 0.2, 0.4]),
        ([8, 1, 1], [0, 0, 0], [0.5, 9, 9], [0.5, 0.25, 0.25]),  # what one cannot use goes to the others
        ([0, 0], [0.1, 0.2], [1, 1], [0.1, 0.2]),  # without any weight
        ([], [], [], []),
    ],
)
def test_a_core_is_shared_in_proportion_within_bounds(
    weights: list[float], least: list[float], most: list[float], expected: list[float]
) -> None:
    assert in_proportion(weights, least, most, 1.0) == pytest.approx(expected)


@given(st.lists(BOUNDED, min_size=1, max_size=8))
def test_bounds_hold_and_all_is_handed_out_that_the_bounds_allow(jobs: list[tuple[float, float, float]]) -> None:
    weights, least = [weight for weight, _, _ in jobs], [low for _, low, _ in jobs]
    most = [low + more for _, low, more in jobs]
    total = sum(least) + 1.0
    given_out = in_proportion(weights, least, most, total)
    assert all(low <= cores <= high for low, cores, high in zip(least, given_out, most, strict=True))
    weighted = [high if weight > 1e-9 else low for weight, low, high in zip(weights, least, most, strict=True)]
    if all(weight == 0 or weight > 1e-9 for weight in weights):
        assert sum(given_out) == pytest.approx(min(total, sum(weighted)))


def test_a_job_can_use_the_node_unless_it_says_less() -> None:
    node = a_node(cpu_cores=2.0)
    assert [useful_cores(a_job("a", useful_cores=cores), node) for cores in (None, 0.5, 8.0)] == [2.0, 0.5, 2.0]


@pytest.mark.parametrize(
    ("owner", "threads", "cores"), [(None, None, None), (None, 2, 2), (1.5, None, 1.5), (1.5, 2, 1.5), (1.5, 1, 1)]
)
def test_the_fewer_of_what_the_owner_states_and_the_useful_threads_count(
    owner: float | None, threads: float | None, cores: float | None
) -> None:
    assert stated_cores(owner, threads) == cores


def test_groups_come_one_after_another_and_share_evenly_within() -> None:
    node, jobs = a_node(cpu_cores=2.0), [a_job(uid, useful_cores=1.0) for uid in "abcd"]
    cores = down_the_order([jobs[:1], jobs[1:3], jobs[3:]], node, 0.05)
    assert cores == pytest.approx({"a": 1.0, "b": 0.4875, "c": 0.4875, "d": 0.025})
    assert down_the_order([[a_job("a", useful_cores=0.5)]], node, 0.05) == {"a": 0.5}
    assert down_the_order([], node, 0.05) == {}


@given(st.lists(st.floats(0.01, 4), min_size=1, max_size=8), st.floats(0.01, 1))
def test_everyone_has_the_floor_and_no_more_is_given_than_there_is(parallelism: list[float], ratio: float) -> None:
    node = a_node(cpu_cores=2.0)
    jobs = [a_job(str(index), useful_cores=cores) for index, cores in enumerate(parallelism)]
    cores = down_the_order([[job] for job in jobs], node, ratio)
    assert sum(cores.values()) <= node.cpu_cores * (1 + 1e-9)
    assert min(cores.values()) >= ratio * node.cpu_cores / len(jobs) * (1 - 1e-9)
