"""Scenario files: what they may hold, what is refused and in which words, and which policies run."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from slopewise.config.pass_settings import measuring_of
from slopewise.config.training_policy import PlacementChoice
from slopewise.errors import UsageError
from slopewise.estimators.growth import Measuring
from slopewise.simulator.scenario.scenario import Scenario, load_scenario, policy_runs

SMALL: dict[str, Any] = {
    "apiVersion": "slopewise.dev/v1alpha1",
    "kind": "Scenario",
    "metadata": {"name": "small"},
    "spec": {
        "nodes": [{"name": "n1", "cpu": 2, "memoryGiB": 8}],
        "jobs": [{"name": "a", "model": "gru"}],
        "generate": {"count": 3, "arriveSeconds": {"uniform": [0, 9]}, "models": {"gru": 1}},
        "models": {"mine": {"workCpuSeconds": [1, 2], "curve": {"exponential": {"k": 8}}}},
        "policies": ["flowcon"],
    },
}


def with_changes(**changes: Any) -> dict[str, Any]:
    """The small scenario with other values at dotted places of its spec (`_` for `.`); None removes the key."""
    document = deepcopy(SMALL)
    for place, value in changes.items():
        *folders, key = place.split("_")
        at = document["spec"]
        for folder in folders:
            at = at[int(folder)] if folder.isdigit() else at[folder]
        last = int(key) if key.isdigit() else key
        if value is None:
            del at[last]
        else:
            at[last] = value
    return document


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def write_and_load(document: object) -> Scenario:
        path = tmp_path / "s.yaml"
        path.write_text(yaml.safe_dump(document))
        return load_scenario(str(path))

    return write_and_load


def curve(**kind: Any) -> dict[str, Any]:
    return {"workCpuSeconds": 5, "curve": kind}


MISTAKES = [
    ({"migration": {"maxConcurrent": 0}}, "migration.maxConcurrent: must be greater than or equal to 1, not 0."),
    ({"nodes_0_cpus": 1}, "nodes.0.cpus: unknown key; did you mean 'cpu'?"),
    ({"nodes": []}, "nodes is empty; add at least one, for example {name: n1, cpu: 2}."),
    ({"nodes": None}, "nodes: is required; add it."),
    ({"jobs": [], "generate": None}, "there are no jobs; list them under jobs, or have them drawn "),
    ({"jobs_0_workCpuSeconds": -5}, "jobs.0.workCpuSeconds: must be above 0 and at most 1e+09, not -5."),
    ({"models_mine_workCpuSeconds": [9, 5]}, "models.mine.workCpuSeconds: lowest 9 is above highest 5; swap them."),
    ({"jobs_0_workCpuSeconds": "long"}, "jobs.0.workCpuSeconds: must be a number or [lowest, highest], not 'long'."),
    ({"jobs_0_arriveSeconds": -1}, "jobs.0.arriveSeconds: must be at least 0 and at most 1e+09, not -1."),
    (
        {"models_mine": curve(points=[[0, 1], [0.5, 1.1], [1, 1]])},
        "models.mine.curve.points: the curve never falls below 1, its first value; ",
    ),
    ({"models_mine": curve()}, "models.mine.curve: give exactly one of exponential, power, "),
    ({"models_mine": curve(power={"b": 1}, inverse={"a": 1})}, "not power and inverse."),
    (
        {"models_mine": curve(steps={"at": [0.5], "to": [0.5, 0.2]})},
        "models.mine.curve.steps: at has 1 values and to has 2; ",
    ),
    (
        {"models_mine": curve(steps={"at": ["x"], "to": [0.5]})},
        "models.mine.curve.steps.at.0: must be a valid number, unable to parse string as a number, not 'x'.",
    ),
    (
        {"models_mine": curve(steps={"at": [0.3, 0.6], "to": [0.2, 0.5]})},
        "models.mine.curve.steps: at must increase and to must decrease from drop to drop; sort them.",
    ),
    ({"models_mine": {"workCpuSeconds": 5}}, "models.mine: give workCpuSeconds and curve (a model "),
    ({"jobs_0_memoryGiB": 9}, "job 'a' needs 9 GiB and the largest node has 8; ask for less or add a larger node."),
    (
        {"jobs_0_request": "3"},
        "job 'a' requests 3000m and the largest node has 2000m; ask for less or add a larger node.",
    ),
    (
        {"models_mine_memoryGiB": 9, "generate_models": {"mine": 1}},
        "model 'mine' needs 9 GiB and the largest node has 8; ",
    ),
    ({"jobs_0_model": "gruu"}, "there is no model 'gruu'; did you mean 'gru'?"),
    ({"generate_models": {"xyz": 1}}, ", or describe it under models."),
    ({"jobs_0_model": None}, "jobs.0: model is missing; name one, or give requestCpuSeconds for a job that is served."),
    ({"jobs": [{"name": "a", "model": "gru"}] * 2}, "more than one job is named 'a'; give each a name of its own."),
    ({"jobs_0_name": "job-2"}, "more than one job is named 'job-2'; give each a name of its own."),
    ({"jobs_0_name": "<b>"}, "jobs.0.name: '<b>' cannot be a job's name; use up to 63 "),
    (
        {"nodes": [{"name": "n", "cpu": 1, "count": 2}, {"name": "n-1", "cpu": 1}]},
        "more than one node is named 'n-1'; give each a name of its own.",
    ),
    ({"nodes_0_cpu": 0}, "nodes.0.cpu: 0 is less than the smallest CPU quantity; write at least 1m."),
    ({"jobs_0_model": "served"}, "served models run until the run ends; say when with durationSeconds."),
    (
        {"jobs_0_model": "served", "jobs_0_workCpuSeconds": 5, "durationSeconds": 60},
        "job 'a' has a model that is served; give it requestCpuSeconds instead.",
    ),
    ({"models_served": curve(power={"b": 1})}, "the model 'served' is what generate.qoe draws; give yours "),
    ({"jobs_0_requestCpuSeconds": 1}, "job 'a' has a model that is trained; give it workCpuSeconds instead."),
    ({"generate_models": {"served": 1}}, "generate.models holds a served model; draw those with generate.qoe."),
    ({"generate": {"count": 3}}, "generate: arriveSeconds and models must be given; for example {count: 10, "),
    (
        {"generate_qoe": {"totalCores": 2}},
        "generate: qoe draws served models alone; remove deadlines, models and sizes.",
    ),
    (
        {"generate_arriveSeconds": {"every": 5, "poisson": 1}},
        "arriveSeconds: give exactly one of uniform, every, poisson, bursts, not every and poisson.",
    ),
    (
        {"jobs_0_targetLoss": 0.3, "jobs_0_deliverableLoss": 0.2},
        "jobs.0: deliverableLoss 0.2 is reached no sooner than targetLoss 0.3; raise the first.",
    ),
    (
        {"behaviour": {"intervalSeconds": 5}},
        "behaviour: intervalSeconds stands beside behaviour, not in it; move it there.",
    ),
    ({"quotaSpeeds": [[0.1, 0.1], [1, 1]]}, "quotaSpeeds: must begin with [0, 0] and hold at least one more"),
    ({"quotaSpeeds": [[0, 0], [0.5, 0.5], [0.5, 1]]}, "quotaSpeeds: quotas must increase and speeds must not fall; "),
    ({"quotaSpeeds": [[0, 0], [float("nan"), 1]]}, "quotaSpeeds: a quota or a speed is not finite; "),
    (
        {"models_mine_curve": {"power": {"b": 1e-20}}},
        "models.mine.curve.power.b: must be greater than or equal to 0.000001, not 1e-20.",
    ),
    ({"policies": ["flowcn"]}, "policies.0.name: there is no policy 'flowcn'; did you mean 'flowcon'?"),
    (
        {"policies": [{"name": "flowcon", "parameters": {"alfa": 2}}]},
        "policies.0.parameters.alfa: unknown key; did you mean 'alpha'?",
    ),
    (
        {"policies": ["flowcon", {"name": "flowcon", "parameters": {"alpha": 0.1}}]},
        "more than one policy is labelled 'flowcon'; give each a label of its own.",
    ),
    (
        {"evaluation": {"metric": "accuracy"}},
        "evaluation: metric chooses among the series of real jobs, and a simulated job has one loss; drop it.",
    ),
    (
        {"jobs": [{"name": "a", "model": "mnist", "atTarget": "stop"}]},
        "jobs.0: atTarget: stop needs a target; state targetLoss, or leave atTarget out.",
    ),
    (
        {"jobs": [{"name": "a", "model": "mnist", "steps": 1000, "qoeSeconds": 1, "deadlineSeconds": 100}]},
        "jobs.0: 1000 steps of qoeSeconds 1 take 1000 s, and deadlineSeconds is 100; lower the first or raise the",
    ),
    ({"policies": [{"name": "flowcon", "label": "fair"}]}, "the label 'fair' belongs to the baseline; use another."),
]


@pytest.mark.parametrize(("changes", "message"), MISTAKES)
def test_a_mistake_is_reported_in_one_sentence_with_its_place(read: Any, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as error:
        read(with_changes(**changes))
    assert message in str(error.value)
    assert re.match(r"spec(\.|: )", str(error.value).split("s.yaml: ", 1)[1])
    assert str(error.value).endswith((".", "?"))


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({**SMALL, "kind": "TrainingPolicy"}, "kind: must be 'Scenario', not 'TrainingPolicy'."),
        ({**SMALL, "metadata": {}}, "metadata.name: is required; add it."),
        ([], "must be a mapping of keys to values, not list"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused(read: Any, document: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read(document)


def test_a_name_without_slash_or_suffix_is_that_of_a_shipped_scenario() -> None:
    assert load_scenario("flowcon-10").metadata.name == "flowcon-10"
    with pytest.raises(UsageError, match=r"there is no shipped scenario 'flowcon-11'; did you mean 'flowcon-1[05]'\?"):
        load_scenario("flowcon-11")
    with pytest.raises(UsageError, match=r"there is no shipped scenario 'xyz'; use one of .*, or a path such as"):
        load_scenario("xyz")
    with pytest.raises(UsageError, match=r"^nowhere/x: cannot be read \(No such file or directory\)"):
        load_scenario("nowhere/x")


@pytest.mark.parametrize(
    ("changes", "cooldown", "cpu", "interval"),
    [
        ({}, 0, (20, 64_000), 20),
        ({"behaviour": {"cooldownSeconds": 30}, "cpu": {"max": "1500m"}, "intervalSeconds": 40}, 30, (20, 1500), 40),
    ],
)
def test_defaults_follow_the_policy_without_hesitation_and_what_a_scenario_says_leaves_the_others_alone(
    read: Any, changes: dict[str, Any], cooldown: float, cpu: tuple[int, int], interval: float
) -> None:
    run = policy_runs(read(with_changes(**changes)))[1]
    behaviour = run.behaviour
    assert (behaviour.cooldown_seconds, behaviour.max_step_ratio, behaviour.min_change_ratio) == (cooldown, 100, 0.05)
    assert (run.cpu.min, run.cpu.max, run.control) == (*cpu, "requests")
    assert (run.interval_seconds, behaviour.interval_seconds) == (interval, interval)


def test_moves_are_bounded_only_where_a_scenario_says_so(read: Any) -> None:
    assert policy_runs(read(SMALL))[1].migration is None
    bounded = policy_runs(read(with_changes(migration={"enabled": True, "minStaySeconds": 60})))[1].migration
    assert bounded is not None
    assert (bounded.enabled, bounded.min_stay_seconds, bounded.max_concurrent) == (True, 60.0, 1)


class TestPolicyRuns:
    def labels(self, scenario: Scenario, *names: str) -> list[str]:
        return [run.label for run in policy_runs(scenario, names)]

    def test_begin_with_the_baseline_once(self, read: Any) -> None:
        assert self.labels(read(SMALL)) == ["fair", "flowcon"]
        assert self.labels(read(with_changes(policies=["flowcon", "fair"]))) == ["fair", "flowcon"]
        assert self.labels(read(with_changes(policies=None))) == ["fair"]

    def test_keep_what_an_entry_says_of_itself(self, read: Any) -> None:
        entry = {"name": "flowcon", "label": "quick", "parameters": {"alpha": 0.1}, "intervalSeconds": 5}
        entry |= {"control": "limits", "defaultScheduler": "least-used"}
        fair, run = policy_runs(read(with_changes(policies=[entry])))
        assert (run.name, run.label, run.parameters) == ("flowcon", "quick", {"alpha": 0.1})
        assert (run.interval_seconds, run.behaviour.interval_seconds, run.control) == (5, 5, "limits")
        assert (fair.default_scheduler, run.default_scheduler) == (None, "least-used")

    def test_of_two_policies_have_both_names_and_both_parameters(self, read: Any) -> None:
        placement = {"name": "specon", "parameters": {"alpha": 0.02}, "intervalSeconds": 30}
        scenario = read(with_changes(policies=[{"name": "flowcon", "placement": "specon"}, {
            "name": "las", "label": "mine", "placement": placement}]))  # fmt: skip
        both, mine = policy_runs(scenario)[1:]
        assert (both.label, both.name, both.placement) == ("flowcon+specon", "flowcon", PlacementChoice(name="specon"))
        at_times = PlacementChoice(name="specon", parameters={"alpha": 0.02}, interval_seconds=30.0)
        assert (mine.label, mine.placement) == ("mine", at_times)

    def test_with_a_placement_of_the_command_line_run_alone_and_beside_it(self, read: Any) -> None:
        runs = policy_runs(read(SMALL), ["flowcon", "specon"], "specon")
        assert [run.label for run in runs] == ["fair", "flowcon", "specon", "flowcon+specon"]
        with pytest.raises(UsageError, match="policy las chooses no nodes"):
            policy_runs(read(SMALL), ["flowcon"], "las")
        with pytest.raises(UsageError, match=r"there is no policy 'xyz'; use one of .*fair, flowcon"):
            policy_runs(read(SMALL), ["xyz"])

    def test_measure_growth_as_the_scenario_says_and_as_an_entry_says_before_it(self, read: Any) -> None:
        entries = [{"name": "flowcon", "label": "other", "evaluation": {"normaliser": "none"}}, "flowcon"]
        evaluation = {"normaliser": "first", "progress": "absolute"}
        runs = policy_runs(read(with_changes(evaluation=evaluation, policies=entries)))
        assert [measuring_of(20.0, run.evaluation) for run in runs] == [
            Measuring(20.0, "first", "absolute"),
            Measuring(20.0, "none", "absolute"),
            Measuring(20.0, "first", "absolute"),
        ]

    def test_can_be_chosen_by_label_or_by_name_with_default_parameters(self, read: Any) -> None:
        scenario = read(with_changes(policies=[{"name": "flowcon", "label": "quick", "parameters": {"alpha": 0.1}}]))
        runs = policy_runs(scenario, ["quick", "flowcon", "quick", "fair"])
        assert [(run.label, run.parameters) for run in runs] == [
            ("fair", {}),
            ("quick", {"alpha": 0.1}),
            ("flowcon", {}),
        ]


def test_overrides_replace_keys_of_the_spec_and_are_validated_as_a_file_is() -> None:
    scenario = load_scenario("flowcon-10", {"contentionRatio": 0.1})
    assert scenario.spec.contention_ratio == 0.1
    assert scenario.spec.nodes == load_scenario("flowcon-10").spec.nodes
    with pytest.raises(UsageError, match=r"flowcon-10\.yaml: spec\.contention"):
        load_scenario("flowcon-10", {"contention": 0.1})
