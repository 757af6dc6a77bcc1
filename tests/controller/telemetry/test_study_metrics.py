"""What is exported of a study: its best level, the CPU of the best trial and of the others, and how many trials run."""

from __future__ import annotations

from typing import Any

from support.worlds import START, a_job

from slopewise.model import Growth, Job, JobMemory, JobState, Levels, Objectives
from slopewise.telemetry.study_metrics import StudyFamilies


def a_trial(uid: str, **more: Any) -> Job:
    return a_job(uid, **more).altered(objectives=Objectives(study="lr"))


def exported(*trials: tuple[Job, float, float], finite: bool = True) -> dict[str, dict[str, float]]:
    """Of trials with their best level and their cores: each metric by its last label."""
    families = StudyFamilies()
    for job, level, cores in trials:
        levels = Levels(series="loss", first=1.0, best=level, finite=finite)
        growth = Growth(START, 20.0, 0.1, cores, {})
        families.add("training", job, JobMemory(levels=levels, growth=growth))
    families.add("training", a_job("of no study"), JobMemory())
    return {
        family.name: {list(sample.labels.values())[-1]: sample.value for sample in family.samples}
        for family in families
    }


def test_the_best_of_all_is_known_also_once_it_has_ended_and_only_those_that_run_use_cpu() -> None:
    ended = a_trial("ended", level=None, state=JobState.FINISHED)
    running = (a_trial("a"), 0.3, 0.5), (a_trial("b"), 0.2, 0.25)
    assert exported(*running) == {
        "slopewise_study_trials": {"lr": 2},
        "slopewise_study_best_evaluation": {"min": 0.2},
        "slopewise_study_cpu_cores": {"best": 0.25, "others": 0.5},
    }
    assert exported(*running, (ended, 0.1, 1.0)) == {
        "slopewise_study_trials": {"lr": 2},
        "slopewise_study_best_evaluation": {"min": 0.1},
        "slopewise_study_cpu_cores": {"best": 0.0, "others": 0.75},
    }


def test_ranks_of_one_training_are_one_trial_with_the_cpu_of_all() -> None:
    ranks = [(a_trial(f"w:{rank}").altered(name=f"r{rank}"), 0.2, 0.25) for rank in (0, 1)]
    found = exported(*ranks, (a_trial("v:0", level=0.9), 0.3, 0.5))
    assert found["slopewise_study_trials"] == {"lr": 2}
    assert found["slopewise_study_cpu_cores"] == {"best": 0.5, "others": 0.5}


def test_the_highest_is_the_best_where_larger_is_better_and_different_metrics_or_no_finite_loss_have_none() -> None:
    rising = (a_trial("a", objective="max"), 0.3, 0.5), (a_trial("b", objective="max"), 0.2, 0.25)
    assert exported(*rising)["slopewise_study_best_evaluation"] == {"max": 0.3}
    silent = (a_trial("a", level=None), 1.3, 0.5), (a_trial("b", level=None), 1.2, 0.25)  # from 1.0
    assert exported(*silent)["slopewise_study_best_evaluation"] == {"max": 1.3}, "not the lowest, where none reports"
    mixed = exported(rising[0], (a_trial("b"), 0.2, 0.25))
    assert (mixed["slopewise_study_best_evaluation"], mixed["slopewise_study_cpu_cores"]) == (
        {}, {"best": 0.0, "others": 0.75},
    )  # fmt: skip
    assert exported((a_trial("a"), 0.3, 0.5), finite=False)["slopewise_study_best_evaluation"] == {}
