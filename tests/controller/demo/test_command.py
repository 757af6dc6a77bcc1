"""Which documents a demo runs: the demo's own, or the user's beside a baseline that is read and looked at alike.

And what it refuses before anything is started.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from slopewise.config.pass_settings import policy_of, with_interval
from slopewise.config.training_policy import TrainingPolicy
from slopewise.config.validation import validate
from slopewise.demo.command import DemoOptions, document, run_demo, run_names, run_rounds
from slopewise.demo.report.results import RunResult
from slopewise.errors import UsageError
from slopewise.signals import Interrupted

OPTIONS = DemoOptions([], None, None, None, None, 1.0, "auto", None)


def test_the_demos_own_documents_act_and_look_often() -> None:
    spec = document("flowcon", "requests", OPTIONS, None).spec
    assert (spec.mode, spec.policy.name, spec.resources.control) == ("Auto", "flowcon", "requests")
    assert (spec.behaviour.interval_seconds, spec.behaviour.cooldown_seconds) == (5.0, 0.0)


def test_a_users_document_is_taken_as_it_is_and_its_baseline_differs_in_the_policy_alone() -> None:
    written = {
        "mode": "Auto",
        "policy": {"name": "flowcon", "parameters": {"alpha": 0.1}},
        "evaluation": {"metric": "val_accuracy", "objective": "max"},
        "behaviour": {"intervalSeconds": 30},
    }
    base = validate(TrainingPolicy, {"spec": written}, where="p.yaml")
    assert document("flowcon", "limits", OPTIONS, base) is base
    fair = document("fair", "limits", OPTIONS, base).spec
    assert fair.policy.name == "fair"
    assert fair.policy.parameters == {}
    assert fair.model_copy(update={"policy": base.spec.policy}) == base.spec


def test_where_a_users_document_favours_the_best_trial_the_baseline_does_not() -> None:
    base = validate(TrainingPolicy, {"spec": {"mode": "Auto", "studies": "Best"}}, where="p.yaml")
    documents = [with_interval(document(name, "limits", OPTIONS, base), 1.0) for name in run_names(OPTIONS, base)]
    assert [each.spec.studies for each in documents if policy_of(each)] == ["Fair", "Best"]


@pytest.mark.parametrize("interval", [None, 8.0])
def test_the_interval_can_be_chosen(interval: float | None) -> None:
    options = DemoOptions([], Path("jobs.yaml"), None, None, interval, 1.0, "auto", None)
    assert document("fair", "limits", options, None).spec.behaviour.interval_seconds == (interval or 5.0)


def refusal(options: DemoOptions) -> str:
    with pytest.raises(UsageError) as refused:
        run_demo(options, Console(), lambda _: None)
    return str(refused.value)


def test_a_policy_that_must_know_the_future_is_refused_with_where_it_can_run() -> None:
    text = refusal(replace(OPTIONS, policies=["srpt-oracle"]))
    assert text.startswith("policy srpt-oracle: it must know how much work each job has left")
    assert "slopewise simulate" in text


def test_jobs_of_ones_own_and_a_built_in_list_contradict_each_other() -> None:
    text = refusal(replace(OPTIONS, jobs_file=Path("mine.yaml"), workload="served"))
    assert text == "--workload and --jobs contradict each other; leave one of them out."


@pytest.mark.parametrize(
    ("flag", "options"),
    [
        ("--policy", replace(OPTIONS, policies=["fair"])),
        ("--control", replace(OPTIONS, control="limits")),
        ("--interval", replace(OPTIONS, interval_seconds=9.0)),
    ],
)
def test_a_flag_that_a_policy_file_contradicts_is_refused(flag: str, options: DemoOptions) -> None:
    text = refusal(replace(options, policy_file=Path("p.yaml")))
    assert text == f"{flag} and --policy-file contradict each other; write it into p.yaml."


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """On one core two nodes are refused with another sentence."""
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})


@pytest.mark.usefixtures("two_cores")
def test_threads_are_compared_under_fair_sharing_and_one_policy_on_one_node() -> None:
    options = replace(OPTIONS, workload="threads")
    assert run_names(options, None) == ["fair", "marginal"]
    assert run_names(replace(options, policies=["flowcon"]), None) == ["fair", "flowcon"]
    text = refusal(replace(options, policies=["specon"]))
    assert text == ("--workload threads compares threads on one node; leave out --nodes and policies that place jobs.")


def test_a_placement_is_composed_with_the_first_policy_and_with_no_other() -> None:
    options = replace(OPTIONS, policies=["flowcon", "tradl"], placement="specon")
    names = run_names(options, None)
    assert names == ["fair", "flowcon+specon", "tradl"]
    specs = [document(name, "requests", options, None).spec for name in names]
    assert [spec.policy_name for spec in specs] == names
    assert specs[1].placement is not None
    assert specs[1].placement.parameters == {"requireAllConverged": False}


def test_a_documents_two_policies_run_beside_the_baseline_alone() -> None:
    base = TrainingPolicy.model_validate({"spec": {"mode": "Auto", "placement": {"name": "specon"}}})
    assert run_names(OPTIONS, base) == ["fair", "marginal+specon"]
    assert document("flowcon+specon", "requests", OPTIONS, base) is base
    assert document("fair", "requests", OPTIONS, base).spec.policy_name == "fair"


def test_a_document_that_would_change_nothing_is_refused_before_anything_is_started(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("spec: {mode: Recommend}")
    text = refusal(replace(OPTIONS, policy_file=tmp_path / "p.yaml"))
    assert text.endswith("p.yaml: spec.mode is Recommend, in which nothing would be changed; write Auto for a demo.")


# --- rounds -----------------------------------------------------------------------------------------------


class Maker:
    """Makes runs, of which one may be interrupted."""

    def __init__(self, interrupted: int | None = None) -> None:
        self.made: list[str] = []
        self._interrupted = interrupted

    def __call__(self, name: str, namespace: str) -> RunResult:
        if len(self.made) == self._interrupted:
            raise Interrupted(2)
        self.made.append(namespace)
        return RunResult(name, [], {}, 0, 0, 0, 0, 0.0)


def test_rounds_go_through_the_policies_forwards_and_backwards_in_turn() -> None:
    make = Maker()
    text: list[str] = []
    rounds, stopped = run_rounds(["fair", "flowcon", "las"], 3, make, text.append)
    assert make.made == [
        "fair", "flowcon", "las", "las-2", "flowcon-2", "fair-2", "fair-3", "flowcon-3", "las-3",
    ]  # fmt: skip
    assert [[run.policy for run in of_round] for of_round in rounds] == [["fair", "flowcon", "las"]] * 3
    assert stopped is None
    assert text[:4] == ["Round 1 of 3: fair", "Round 1 of 3: flowcon", "Round 1 of 3: las", "Round 2 of 3: las"]


def test_what_was_interrupted_keeps_the_rounds_that_are_whole() -> None:
    rounds, stopped = run_rounds(["fair", "flowcon"], 3, Maker(interrupted=5), lambda _: None)
    assert len(rounds) == 2
    assert stopped is not None
    assert stopped.exit_code == 130


def test_what_is_interrupted_in_its_first_round_has_nothing_to_show() -> None:
    with pytest.raises(Interrupted):
        run_rounds(["fair", "flowcon"], 3, Maker(interrupted=1), lambda _: None)


def test_more_nodes_than_cores_are_refused() -> None:
    assert "this machine has" in refusal(replace(OPTIONS, nodes=4096))


def test_the_demo_moves_running_jobs_soon_and_lets_an_idle_node_take_some_while_others_grow() -> None:
    spec = document("specon", "requests", OPTIONS, None).spec
    assert (spec.migration.enabled, spec.migration.min_stay_seconds, spec.migration.horizon_seconds) == (True, 10, 60)
    assert spec.policy.parameters == {"requireAllConverged": False}
    assert document("flowcon", "requests", OPTIONS, None).spec.policy.parameters == {}
