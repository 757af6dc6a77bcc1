"""CPU within a node: who gets how much, and what it does with it."""

from __future__ import annotations

import pytest
from support.instances import a_sim_node

from slopewise.model import CpuAllocation, CpuControl
from slopewise.simulator.world.model import Physics, SimNode
from slopewise.simulator.world.sharing import Demand, quota_speed, rates

IDEAL = Physics(contention_ratio=0.0)


def a_demand(parallelism: float = 1.0, limit: int | None = None, request: int = 1000) -> Demand:
    return Demand(parallelism, CpuAllocation(limit, request))


def cores(*demands: Demand, cpu: float = 1.0, control: CpuControl = "requests") -> list[float]:
    return [rate.cores for rate in rates(demands, a_sim_node(cpu=cpu), control, IDEAL)]


def of_limits(*demands: Demand) -> list[float]:
    return cores(*demands, control="limits")


class TestRates:
    @pytest.mark.parametrize(
        ("given", "expected"),
        [
            (cores(a_demand(request=1500), a_demand(request=500)), [0.75, 0.25]),  # requests are weights
            (cores(a_demand(request=20)), [1.0]),  # and cap nothing
            (cores(a_demand(limit=100)), [1.0]),  # nor does a limit that is left over from elsewhere
            (of_limits(a_demand(limit=250)), [0.25]),  # limits cap even on an idle node
            (
                of_limits(a_demand(request=1500), a_demand(request=500), a_demand(limit=100, request=9000)),
                [0.675, 0.225, 0.1],
            ),
            (cores(a_demand(1.0), a_demand(3.0), cpu=8.0), [1.0, 3.0]),  # no more than its threads
            (cores(a_demand(request=0), a_demand(request=998)), [0.002, 0.998]),  # something without a request
        ],
    )
    def test_cores_of_each(self, given: list[float], expected: list[float]) -> None:
        assert given == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("demands", "node", "control", "contention", "expected"),
        [
            ([a_demand()], a_sim_node(speed=2.5), "requests", 0.0, (1.0, 2.5)),  # more work with the same CPU
            ([a_demand()] * 3, a_sim_node(cpu=3.0), "requests", 0.01, (1.0, 0.98)),  # neighbours cost work, not CPU
            ([a_demand()] * 50, a_sim_node(cpu=50.0), "requests", 0.1, (1.0, 0.1)),  # a tenth of the speed is left
            ([a_demand(limit=250)], a_sim_node(), "limits", 0.0, (0.25, 0.205)),  # a quota below a core costs more
            ([a_demand(limit=500)] * 10, a_sim_node(), "limits", 0.0, (0.1, 0.1)),  # one that does not bind: nothing
        ],
    )
    def test_cores_and_the_speed_that_they_give(
        self,
        demands: list[Demand],
        node: SimNode,
        control: CpuControl,
        contention: float,
        expected: tuple[float, float],
    ) -> None:
        found = rates(demands, node, control, Physics(contention_ratio=contention))
        assert (found[0].cores, found[0].speed) == pytest.approx(expected)


class TestQuotaSpeed:
    @pytest.mark.parametrize(("quota", "speed"), [(0.1, 0.065), (0.05, 0.0325), (0.75, 0.735), (1.0, 1.0), (2.5, 2.5)])
    def test_is_interpolated_between_the_measured_points(self, quota: float, speed: float) -> None:
        assert quota_speed(quota, IDEAL) == pytest.approx(speed)

    def test_other_measurements_replace_ours(self) -> None:
        assert quota_speed(0.5, Physics(quota_speeds=((0.0, 0.0), (1.0, 0.8), (2.0, 2.0)))) == pytest.approx(0.4)
