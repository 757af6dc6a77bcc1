"""What a policy could do nothing with is refused before the runs, in a sentence with what to do about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slopewise import policies
from slopewise.config.jobs_file import JobSpec
from slopewise.config.training_policy import TrainingPolicy
from slopewise.config.validation import validate
from slopewise.demo.requirements import Surroundings, refuse_idle_policies, refuse_migration, refuse_mode
from slopewise.demo.workloads import longest_seconds
from slopewise.errors import UsageError
from slopewise.model import Objectives

ALL_OF_IT = Objectives(qoe_seconds=0.2, target_level=0.1)
JOBS = [
    JobSpec(name, ["true"], 0.0, objectives=ALL_OF_IT, deadline_seconds=50.0, migratable=True)
    for name in ("a", "b", "c")
]
AMPLE = Surroundings(JOBS, nodes=2, cores=2, interval_seconds=5.0, longest_seconds=40.0)
MINE = Path("mine.yaml")


def bare(given: Surroundings, **changes: Any) -> Surroundings:
    """The same surroundings with other jobs."""
    return replace(given, jobs=[replace(job, **changes) for job in given.jobs])


def refusal(name: str, given: Surroundings) -> str:
    with pytest.raises(UsageError) as refused:
        refuse_idle_policies([name], given)
    assert "\n" not in str(refused.value)
    assert str(refused.value).endswith(".")
    return str(refused.value)


@pytest.mark.parametrize("name", [name.replace("_", "-") for name in policies.names()])
def test_a_policy_that_has_what_it_needs_is_let_through(name: str) -> None:
    refuse_idle_policies([name], AMPLE)
    refuse_idle_policies([name], replace(AMPLE, longest_seconds=None))


@pytest.mark.parametrize("name", ["specon", "draps", "procon"])
def test_a_policy_that_chooses_among_nodes_is_refused_on_one(name: str) -> None:
    assert refusal(name, replace(AMPLE, nodes=1)) == (
        f"policy {name} could do nothing here: it chooses among nodes, and there is one; add --nodes 2."
    )


def test_a_machine_of_one_core_cannot_be_two_nodes() -> None:
    assert "take a machine with two" in refusal("specon", replace(AMPLE, nodes=1, cores=1))


def test_specon_is_refused_where_no_job_may_be_moved() -> None:
    text = refusal("specon", replace(bare(AMPLE, migratable=False), jobs_file=MINE))
    assert text == (
        "policy specon could do nothing here: it moves running jobs, and none of these may be moved; write "
        "`migratable: true` beside those that save on SIGTERM and resume, in mine.yaml."
    )


@pytest.mark.parametrize(
    ("name", "changes", "key", "workload"),
    [
        ("deadline", {"deadline_seconds": None}, "a deadline; write `deadlineSeconds`", "deadlines"),
        ("dqoes", {"objectives": Objectives(target_level=0.1)}, "an objective; write `qoeSeconds`", "served"),
        ("tradl", {"objectives": Objectives(qoe_seconds=0.1)}, "a target; write `targetLoss`", "targets"),
    ],
)
def test_a_policy_about_promises_is_refused_where_none_were_made(
    name: str, changes: dict[str, object], key: str, workload: str
) -> None:
    given = bare(AMPLE, **changes)
    assert f"no job has {key} beside those that do, in mine.yaml." in refusal(name, replace(given, jobs_file=MINE))
    assert f"; add --workload {workload} (" in refusal(name, given)


def test_one_promise_is_enough() -> None:
    one = [JOBS[0], *(replace(job, objectives=Objectives(), deadline_seconds=None) for job in JOBS[1:])]
    refuse_idle_policies(["deadline", "dqoes", "tradl"], replace(AMPLE, jobs=one))


@pytest.mark.parametrize("name", ["flowcon", "tradl", "deadline", "specon", "dqoes"])
def test_jobs_that_end_within_an_interval_are_refused_where_their_length_is_known(name: str) -> None:
    """Even on a machine that is half as fast: 2 · 2.4 s are less than 5 s."""
    assert refusal(name, replace(AMPLE, longest_seconds=2.4)) == (
        f"policy {name} could do nothing here: it decides every 5 s, and the longest of these jobs takes about 2 s; "
        "give a shorter --interval or a larger --scale."
    )
    refuse_idle_policies([name], replace(AMPLE, longest_seconds=2.5))


def test_flowcon2_still_places_jobs_that_are_short() -> None:
    refuse_idle_policies(["flowcon2"], replace(AMPLE, longest_seconds=1.0))
    assert "decides every 5 s" in refusal("flowcon2", replace(AMPLE, nodes=1, longest_seconds=1.0))


def test_a_job_alone_has_no_other_to_share_with() -> None:
    text = refusal("flowcon", replace(AMPLE, jobs=JOBS[:1], jobs_file=MINE))
    assert text.startswith("There is one job, and a policy shares CPU or nodes among several;")
    refuse_idle_policies([], replace(AMPLE, jobs=JOBS[:1]))


@pytest.mark.parametrize("mode", ["Observe", "Recommend"])
def test_a_document_in_whose_mode_nothing_is_changed_is_refused(mode: str) -> None:
    document = validate(TrainingPolicy, {"spec": {"mode": mode}}, where="p.yaml")
    with pytest.raises(
        UsageError, match=rf"p\.yaml: spec.mode is {mode}, in which nothing would be changed; write Auto"
    ):
        refuse_mode(document, Path("p.yaml"))


@pytest.mark.parametrize("mode", ["Canary", "Auto"])
def test_a_document_that_acts_is_let_through(mode: str) -> None:
    refuse_mode(validate(TrainingPolicy, {"spec": {"mode": mode}}, where="p.yaml"), Path("p.yaml"))


@pytest.mark.parametrize(
    ("name", "enabled", "refused"), [("specon", False, True), ("specon", True, False), ("flowcon", False, False)]
)
def test_specon_is_refused_where_its_document_forbids_moves(name: str, enabled: bool, refused: bool) -> None:
    spec = {"mode": "Auto", "policy": {"name": name}, "migration": {"enabled": enabled}}
    document = validate(TrainingPolicy, {"spec": spec}, where="p.yaml")
    if refused:
        with pytest.raises(UsageError, match=r"spec\.migration\.enabled is false; write true"):
            refuse_migration(document, Path("p.yaml"))
    else:
        refuse_migration(document, Path("p.yaml"))


def test_a_placement_that_only_moves_is_refused_where_its_document_forbids_moves() -> None:
    document = validate(TrainingPolicy, {"spec": {"mode": "Auto", "placement": {"name": "specon"}}}, where="p.yaml")
    with pytest.raises(UsageError, match="policy specon could do nothing here: it only moves jobs"):
        refuse_migration(document, Path("p.yaml"))


def test_each_of_two_composed_policies_is_checked() -> None:
    assert refusal("flowcon+specon", replace(AMPLE, nodes=1)).startswith("policy specon could do nothing here: it ch")


# --- how long built-in jobs take --------------------------------------------------------------------------


def test_the_length_of_the_built_in_jobs_follows_the_scale() -> None:
    named = [JobSpec(name, ["true"], 6.0 * place) for place, name in enumerate(("digits-mlp", "stdlib-chars"))]
    assert longest_seconds("trainings", 1.0, named, 2) == pytest.approx(25.0)
    assert longest_seconds("trainings", 0.1, named, 2) == pytest.approx(1.5 + 2.35)
    assert longest_seconds("trainings", 1.0, named, 1) == pytest.approx(14.7 + 25.0), "until both are done"
    assert longest_seconds("served", 0.5, [], 2) == 45.0
