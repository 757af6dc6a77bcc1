"""Which jobs and nodes a demo chooses by itself, and that deadlines and targets follow from their rules."""

from __future__ import annotations

from pathlib import Path

import pytest

from slopewise import policies
from slopewise.demo import workloads
from slopewise.demo.trainings.catalogue import TRAININGS, demo_jobs
from slopewise.demo.workloads import (
    SOLO_RUNS,
    WorkloadName,
    build_workload,
    fitting_nodes,
    fitting_workload,
    reason_for,
    with_threads,
)
from slopewise_exporter.logs import LineParser

CORES = 2.0
STEP_SECONDS = 0.05
SPENT_AROUND_SECONDS = 4.0
"""Of a real job, beside its work: the first value is held for 1.2 s, and its last scrape is waited for."""


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["dqoes"], "served"),
        (["deadline"], "deadlines"),
        (["tradl"], "targets"),
        (["specon"], "uneven"),
        (["flowcon+specon"], "uneven"),
        (["deadline+procon"], "deadlines"),
        (["flowcon"], "trainings"),
        (["flowcon2", "dqoes"], "trainings"),
        (["dqoes", "deadline"], "served"),
        ([], "trainings"),
    ],
)
def test_the_first_policy_named_chooses_the_jobs(names: list[str], expected: WorkloadName) -> None:
    assert fitting_workload(names) == expected


def test_what_was_chosen_and_why_is_said_unless_there_was_nothing_to_choose() -> None:
    assert reason_for(["flowcon", "fair"], "trainings") == ""
    text = reason_for(["dqoes", "deadline"], "served")
    assert text == (
        "The jobs are served models with response-time objectives, which fit dqoes, the first policy named; "
        "--workload chooses others."
    )
    assert "fit flowcon, the first policy named" in reason_for(["flowcon", "dqoes"], "trainings")


@pytest.mark.parametrize(
    ("names", "cores", "expected"),
    [
        (["specon"], 2, 2),
        (["flowcon+specon"], 2, 2),
        (["flowcon", "procon"], 8, 2),
        (["specon"], 1, 1),
        (["flowcon"], 8, 1),
    ],
)
def test_policies_that_choose_among_nodes_get_two_where_there_are_two_cores(
    names: list[str], cores: int, expected: int
) -> None:
    assert fitting_nodes(names, cores) == expected


def test_every_policy_that_is_named_here_is_one() -> None:
    known = {name.replace("_", "-") for name in policies.names()}
    assert {*workloads._ON_ONE_NODE, *workloads._FITTING} <= known


def test_every_training_was_measured_alone() -> None:
    assert set(SOLO_RUNS) == set(TRAININGS)


@pytest.mark.parametrize(("by_deadline", "least", "most"), [(True, 8, 8), (False, 2, 6)])
def test_all_deadlines_can_be_met_on_two_cores_and_even_sharing_misses_some(
    by_deadline: bool, least: int, most: int
) -> None:
    """Earliest deadline first is the proof that they can; sharing is what happens without anybody."""
    jobs = {job.name: job for job in build_workload("deadlines", 1.0, CORES)}
    left = {name: SOLO_RUNS[name].seconds for name in jobs}
    ended: dict[str, float] = {}
    now = 0.0
    while len(ended) < len(jobs):
        here = [name for name, job in jobs.items() if job.arrive_seconds <= now and name not in ended]
        here.sort(key=lambda name: jobs[name].arrive_seconds + (jobs[name].deadline_seconds or 0.0))
        for place, name in enumerate(here):
            got = min(1.0, max(0.0, CORES - place)) if by_deadline else min(1.0, CORES / len(here))
            left[name] -= got * STEP_SECONDS
            if left[name] <= 0:
                ended[name] = now - jobs[name].arrive_seconds + SPENT_AROUND_SECONDS
        now += STEP_SECONDS
    met = sum(ended[name] <= (job.deadline_seconds or 0.0) for name, job in jobs.items())
    assert least <= met <= most


def test_targets_lie_between_the_first_and_the_best_loss_the_final_one_lower() -> None:
    for job in build_workload("targets", 1.0, CORES):
        solo, asked = SOLO_RUNS[job.name], job.objectives
        assert asked.deliverable_level is not None
        assert asked.target_level is not None
        assert solo.best_loss < asked.target_level < asked.deliverable_level < solo.first_loss


def test_uneven_jobs_are_long_and_short_in_turn_and_all_there_before_the_first_has_ended() -> None:
    pytest.importorskip("sklearn")
    usual, uneven, small = demo_jobs(), build_workload("uneven", 1.0, CORES), build_workload("uneven", 0.1, CORES)
    assert [job.arrive_seconds for job in small] == pytest.approx([0.1 * job.arrive_seconds for job in uneven])
    ratios = [int(mine.command[-1]) / int(theirs.command[-1]) for mine, theirs in zip(uneven, usual, strict=True)]
    assert ratios == pytest.approx([1.5, 0.4] * 4)
    assert [job.name for job in uneven] == [job.name for job in usual]
    shortest = min(0.4 * (SOLO_RUNS[job.name].seconds - 1.5) for job in uneven)
    assert uneven[-1].arrive_seconds <= 4 * shortest  # four jobs share a core from the fourth on


def test_scripts_with_default_threads_name_no_number_and_have_no_line_of_ours() -> None:
    jobs = build_workload("threads", 1.0, CORES)
    scripts = {Path(job.command[-2]) for job in jobs}
    assert {script.name for script in scripts} == {"histograms.py", "products.py"}
    for script in scripts:
        text = script.read_text()
        assert "import slopewise" not in text
        assert "from slopewise" not in text
        assert "n_jobs" not in text
        assert "NUM_THREADS" not in text
    assert all(job.command[2:5] == ["-m", "slopewise_exporter", "run"] and not job.environment for job in jobs)
    assert {job.environment["SLOPEWISE_THREADS"] for job in with_threads(jobs, "off")} == {"off"}
    small = build_workload("threads", 0.1, CORES)
    assert [int(job.command[-1]) for job in small] == [int(job.command[-1]) / 10 for job in jobs]


@pytest.mark.parametrize(
    ("line", "step", "planned", "loss"),
    [
        ("[3/600] 1 tree, 31 leaves, max depth = 8, train loss: 0.41, val loss: 1.5, in 0.004s", 3, 600, 0.41),
        ("step 20/1500 loss=0.304167", 20, 1500, 0.304167),
    ],
)
def test_their_steps_plans_and_losses_are_found_in_what_they_print(
    line: str, step: int, planned: int, loss: float
) -> None:
    found = LineParser([workloads.STEP_PATTERN]).parse(line)
    assert found is not None
    assert (found.step, found.steps_planned, found.loss) == (step, planned, loss)
