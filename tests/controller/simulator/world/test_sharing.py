"""CPU within a node: who gets how much, and what it does with it."""

from __future__ import annotations

import pytest
from support.instances import a_sim_node

from slopewise.model import CpuAllocation, CpuControl
from slopewise.simulator.world.model import Physics
from slopewise.simulator.world.sharing import Demand, Rate, quota_speed, rates

IDEAL = Physics(contention_ratio=0.0)


def a_demand(parallelism: float = 1.0, limit: int | None = None, request: int = 1000) -> Demand:
    return Demand(parallelism, CpuAllocation(limit, request))


def cores(*demands: Demand, cpu: float = 1.0, control: CpuControl = "requests") -> list[float]:
    return [rate.cores for rate in rates(demands, a_sim_node(cpu=cpu), control, IDEAL)]


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
