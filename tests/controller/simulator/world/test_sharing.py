"""CPU within a node: who gets how much, and what it does with it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.instances import a_sim_node

from slopewise.model import CpuAllocation, CpuControl
from slopewise.simulator.world.model import Physics
from slopewise.simulator.world.sharing import Demand, Rate, quota_speed, rates, water_fill

IDEAL = Physics(contention_ratio=0.0)


def a_demand(parallelism: float = 1.0, limit: int | None = None, request: int = 1000) -> Demand:
    return Demand(parallelism, CpuAllocation(limit, request))


def cores(*demands: Demand, cpu: float = 1.0, control: CpuControl = "requests") -> list[float]:
    return [rate.cores for rate in rates(demands, a_sim_node(cpu=cpu), control, IDEAL)]


class TestWaterFill:
    def test_what_one_job_cannot_use_goes_to_the_others(self) -> None:
        assert water_fill([0.19, 1.0], [1.0, 1.0], 1.0) == pytest.approx([0.19, 0.81])

    def test_shares_follow_the_weights(self) -> None:
        assert water_fill([1.0, 1.0], [1.0, 0.25], 1.0) == pytest.approx([0.8, 0.2])

    def test_everyone_gets_its_cap_when_there_is_enough(self) -> None:
        assert water_fill([0.5, 1.0], [1.0, 9.0], 4.0) == [0.5, 1.0]

    def test_no_jobs_share_nothing(self) -> None:
        assert water_fill([], [], 1.0) == []

    @given(
        st.lists(st.tuples(st.floats(0.001, 64), st.floats(0.001, 1e4)), min_size=1, max_size=20), st.floats(0.1, 64)
    )
    def test_never_over_capacity_nor_a_cap_and_nothing_left_that_someone_wants(
        self, jobs: list[tuple[float, float]], capacity: float
    ) -> None:
        caps, weights = [cap for cap, _ in jobs], [weight for _, weight in jobs]
        shares = water_fill(caps, weights, capacity)
        assert all(0 <= share <= cap for share, cap in zip(shares, caps, strict=True))
        assert sum(shares) == pytest.approx(min(capacity, sum(caps)))
        assert sum(shares) <= capacity * (1 + 1e-12)

    @given(st.lists(st.tuples(st.floats(0.01, 64), st.floats(0.1, 1e3)), min_size=2, max_size=12), st.floats(0.1, 64))
    def test_a_job_that_is_below_its_cap_has_at_least_as_much_for_its_weight_as_anyone(
        self, jobs: list[tuple[float, float]], capacity: float
    ) -> None:
        shares = water_fill([cap for cap, _ in jobs], [weight for _, weight in jobs], capacity)
        per_weight = [share / weight for share, (_, weight) in zip(shares, jobs, strict=True)]
        for mine, share, (cap, _) in zip(per_weight, shares, jobs, strict=True):
            if share < cap * (1 - 1e-9):
                assert mine >= max(per_weight) * (1 - 1e-6)


class TestRates:
    def test_requests_are_weights_and_cap_nothing(self) -> None:
        assert cores(a_demand(request=1500), a_demand(request=500)) == pytest.approx([0.75, 0.25])
        assert cores(a_demand(request=20)) == [1.0]

    def test_a_limit_left_over_from_elsewhere_does_not_cap_shares(self) -> None:
        assert cores(a_demand(limit=100)) == [1.0]

    def test_limits_cap_even_on_an_idle_node(self) -> None:
        assert cores(a_demand(limit=250), control="limits") == [0.25]

    def test_requests_are_weights_under_limits_too(self) -> None:
        demands = a_demand(request=1500), a_demand(request=500), a_demand(limit=100, request=9000)
        assert cores(*demands, control="limits") == pytest.approx([0.675, 0.225, 0.1])

    def test_no_job_uses_more_than_its_threads(self) -> None:
        assert cores(a_demand(1.0), a_demand(3.0), cpu=8.0) == [1.0, 3.0]

    def test_a_job_without_a_request_still_gets_something(self) -> None:
        starved = cores(a_demand(request=0), a_demand(request=998))[0]
        assert starved == pytest.approx(0.002)

    def test_a_fast_node_does_more_work_with_the_same_cpu(self) -> None:
        (rate,) = rates([a_demand()], a_sim_node(speed=2.5), "requests", IDEAL)
        assert rate == Rate(1.0, 2.5)

    def test_neighbours_cost_work_and_not_cpu(self) -> None:
        both = rates([a_demand()] * 3, a_sim_node(cpu=3.0), "requests", Physics(contention_ratio=0.01))
        assert both == [Rate(1.0, 0.98)] * 3

    def test_however_many_neighbours_a_tenth_of_the_speed_is_left(self) -> None:
        crowd = rates([a_demand()] * 50, a_sim_node(cpu=50.0), "requests", Physics(contention_ratio=0.1))
        assert crowd[0].speed == pytest.approx(0.1)

    def test_a_binding_quota_below_a_core_costs_more_than_its_fraction(self) -> None:
        (rate,) = rates([a_demand(limit=250)], a_sim_node(), "limits", IDEAL)
        assert rate == Rate(0.25, pytest.approx(0.205))  # type: ignore[arg-type]

    def test_a_quota_that_does_not_bind_costs_nothing(self) -> None:
        crowd = rates([a_demand(limit=500)] * 10, a_sim_node(), "limits", IDEAL)
        assert crowd[0] == Rate(pytest.approx(0.1), pytest.approx(0.1))  # type: ignore[arg-type]


class TestQuotaSpeed:
    @pytest.mark.parametrize(("quota", "speed"), [(0.1, 0.065), (0.05, 0.0325), (0.75, 0.735), (1.0, 1.0), (2.5, 2.5)])
    def test_is_interpolated_between_the_measured_points(self, quota: float, speed: float) -> None:
        assert quota_speed(quota, IDEAL) == pytest.approx(speed)

    def test_other_measurements_replace_ours(self) -> None:
        assert quota_speed(0.5, Physics(quota_speeds=((0.0, 0.0), (1.0, 0.8), (2.0, 2.0)))) == pytest.approx(0.4)
