"""Every scenario that comes with Slopewise: it loads, says where it is from, and draws the same for the same seed."""

from __future__ import annotations

from importlib.resources import files

import pytest

from slopewise.simulator.scenario.builtin_models import BUILT_IN
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs, shipped
from slopewise.simulator.workload import draw

NOT_RANDOM = {"demo", "demo-threads", "flowcon-fixed"}


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_scenario_names_its_source_has_room_for_its_jobs_and_draws_alike_for_a_seed(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.metadata.name == name
    assert scenario.metadata.description
    first_line = (files("slopewise.simulator") / "scenarios" / f"{name}.yaml").read_text().splitlines()[0]
    assert any(word in first_line for word in ("thesis", "abstract", "Ours", "slopewise demo"))
    runs = policy_runs(scenario)
    assert runs[0].name == "fair"
    assert len(runs) > 1
    first, again, other = (draw(scenario, seed) for seed in (1, 1, 2))
    assert first == again
    assert (first.jobs == other.jobs) == (name in NOT_RANDOM)
    largest = max(node.memory_bytes for node in first.nodes)
    assert all((job.memory_bytes or 0) <= largest for job in first.jobs)


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


@pytest.mark.parametrize(
    ("model", "done", "improvement"),
    [
        ("vae-pytorch", 0.2, 0.65),
        ("vae-tensorflow", 0.2, 0.65),
        ("birnn", 0.2, 0.98),
        ("gru", 0.2, 0.9),
        ("gru", 0.27, 0.99),
    ],
)
def test_built_in_models_improve_as_the_published_curves_do(model: str, done: float, improvement: float) -> None:
    curve = BUILT_IN[model].curve
    assert curve is not None
    assert 1 - curve.build().at(done) == pytest.approx(improvement, abs=1e-4)


def test_every_built_in_work_is_the_published_or_chosen_one() -> None:
    works = {name: model.work_cpu_seconds[0] for name, model in BUILT_IN.items() if model.work_cpu_seconds}
    assert works == {
        "vae-pytorch": 260, "vae-tensorflow": 200, "mnist-pytorch": 106, "mnist-tensorflow": 28, "gru": 150,
        "birnn": 120, "lstm-crf": 180, "rnn": 90, "dynamic-rnn": 140,
    }  # fmt: skip
    assert BUILT_IN["lstm-crf"].parallelism == 0.19
