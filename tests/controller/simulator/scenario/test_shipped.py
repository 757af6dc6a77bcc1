"""Every scenario that comes with Slopewise: it loads, says where it is from, and draws the same for the same seed."""

from __future__ import annotations

from importlib.resources import files

import pytest

from slopewise.simulator.engine import run
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs, shipped
from slopewise.simulator.workload import draw

NOT_RANDOM = {"demo", "demo-threads", "flowcon-fixed"}
SHIPPED = {
    "flowcon-fixed", "flowcon-5", "flowcon-10", "flowcon-15", "specon-20-vae", "specon-20-vae-random",
    "specon-20-mixed", "specon-30-mixed", "specon-50-mixed", "flowcon2-20", "flowcon2-60", "flowcon2-60-homogeneous",
    "qoe-ample", "qoe-scarce", "deadline-ample", "deadline-scarce", "heavy-tailed", "bursts", "noisy",
    "learning-rate-drops", "overfitting", "diverging", "heterogeneous", "tradl", "demo", "day-1000", "spikes",
    "draps", "procon", "hours", "liars", "demo-threads", "gpu-node",
}  # fmt: skip


def test_all_that_were_promised_are_there() -> None:
    assert set(shipped()) == SHIPPED


@pytest.mark.parametrize("name", shipped())
class TestEveryShippedScenario:
    def test_bears_the_name_of_its_file_and_says_where_it_is_from(self, name: str) -> None:
        scenario = load_scenario(name)
        assert scenario.metadata.name == name
        assert scenario.metadata.description
        first = (files("slopewise.simulator") / "scenarios" / f"{name}.yaml").read_text().splitlines()[0]
        assert any(word in first for word in ("thesis", "abstract", "Ours", "slopewise demo"))

    def test_runs_the_baseline_and_at_least_one_policy(self, name: str) -> None:
        runs = policy_runs(load_scenario(name))
        assert runs[0].name == "fair"
        assert len(runs) > 1

    def test_draws_the_same_for_a_seed_and_differs_between_seeds_where_it_is_random(self, name: str) -> None:
        scenario = load_scenario(name)
        assert draw(scenario, 1) == draw(scenario, 1)
        assert (draw(scenario, 1).jobs == draw(scenario, 2).jobs) == (name in NOT_RANDOM)

    def test_has_room_for_every_job(self, name: str) -> None:
        instance = draw(load_scenario(name), 1)
        largest = max(node.memory_bytes for node in instance.nodes)
        assert all((job.memory_bytes or 0) <= largest for job in instance.jobs)


def test_fair_sharing_of_the_fixed_run_takes_as_long_as_printed() -> None:
    """Printed: 394.0 s makespan, 84.7 s for MNIST-TF, 240.5 s with two jobs or more."""
    scenario = load_scenario("flowcon-fixed")
    outcome = run(draw(scenario, 1), policy_runs(scenario, ["fair"])[0])
    times = {job.name: job.jct_seconds for job in outcome.jobs}
    assert outcome.ended_seconds == pytest.approx(394.0, abs=0.1)
    assert times["mnist-tf"] == pytest.approx(84.7, abs=0.1)
    assert outcome.overlap_seconds[2] + outcome.overlap_seconds[3] == pytest.approx(240.5, abs=0.1)


def test_the_two_clusters_of_flowcon_2_get_the_same_jobs() -> None:
    unlike, alike = (draw(load_scenario(name), 3) for name in ("flowcon2-60", "flowcon2-60-homogeneous"))
    works = [
        [(job.name, job.model, job.arrive_seconds, job.work_cpu_seconds) for job in each.jobs]
        for each in (unlike, alike)
    ]
    assert works[0] == works[1]
    assert sum(node.cpu_cores for node in unlike.nodes) == sum(node.cpu_cores for node in alike.nodes) == 8


def test_the_day_asks_for_about_seven_tenths_of_the_cpu() -> None:
    instance = draw(load_scenario("day-1000"), 1)
    asked = sum(job.work_cpu_seconds for job in instance.jobs)
    there = sum(node.cpu_cores for node in instance.nodes) * 86_400
    assert (len(instance.jobs), len(instance.nodes)) == (1000, 64)
    assert asked / there == pytest.approx(0.7, abs=0.07)
