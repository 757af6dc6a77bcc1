"""Policies of the user's where policies are named: documents, scenarios, the demo, the objects of a cluster."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from support.command_line import slopewise
from support.own_policy import a_file, a_name, deciding, failing
from support.worlds import a_job, a_snapshot

from slopewise.adapters.kube.state.training_policies import parse_policy
from slopewise.config.pass_settings import policy_of, with_interval
from slopewise.config.training_policy import PolicyChoice, load_training_policy, policy_parameters
from slopewise.demo.command import DemoOptions, run_names
from slopewise.errors import SlopewiseError, UsageError
from slopewise.local.run import document
from slopewise.model import MemoryState
from slopewise.own_policies.contract import decide
from slopewise.simulator.scenario.scenario import load_scenario, policy_runs
from slopewise.simulator.sweep import simulate

DEMO = DemoOptions([], None, None, None, None, 1.0, "auto", None)


def a_document(folder: Path, name: str, **parameters: object) -> Path:
    path = folder / "policy.yaml"
    path.write_text(yaml.safe_dump({"spec": {"policy": {"name": name, "parameters": parameters}}}))
    return path


def a_scenario(folder: Path, *policies: object) -> str:
    spec = {
        "nodes": [{"name": "n1", "cpu": 1, "memoryGiB": 8}],
        "generate": {"count": 4, "arriveSeconds": {"uniform": [0, 60]}, "models": {"mnist-tensorflow": 1}},
        "policies": list(policies),
    }
    head = {"apiVersion": "slopewise.dev/v1alpha1", "kind": "Scenario", "metadata": {"name": "mine"}}
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({**head, "spec": spec}))
    return str(path)


class TestDocuments:
    def test_a_file_of_this_machine_names_a_policy_by_its_path_from_there(self, tmp_path: Path) -> None:
        path = a_file(tmp_path)
        document = load_training_policy(a_document(tmp_path, f"./{path.name}", floorRatio=0.5))
        assert document.spec.policy.name == path.stem.replace("_", "-")
        decisions = decide(
            policy_of(with_interval(document, scrape_interval_seconds=1.0)), a_snapshot([a_job("only")]), MemoryState()
        )
        assert decisions.reasons == {"only": "1 in order of age, weight 1000 of 1000, as if limited to 1 of 1 cores"}

    def test_a_mistake_in_the_policys_file_is_reported_with_where_it_was_named(self, tmp_path: Path) -> None:
        path = a_file(tmp_path, failing("1 / 0"))
        with pytest.raises(UsageError) as refused:
            load_training_policy(a_document(tmp_path, f"./{path.name}"))
        assert f"policy.yaml: spec.policy.name: {path}: cannot be loaded: ZeroDivisionError" in str(refused.value)

    def test_a_validator_of_the_users_that_raises_is_a_sentence(self, tmp_path: Path) -> None:
        text = deciding("return fair").replace(
            "    '''None.'''\n",
            "    '''None.'''\n    x: float = 1.0\n    def model_post_init(self, _):\n        if self.x > 1: {}['x']\n",
        )
        name = load_training_policy(a_document(tmp_path, f"./{a_file(tmp_path, text).name}")).spec.policy.name
        with pytest.raises(UsageError, match=r"p\.yaml: spec\.policy\.parameters: KeyError: 'x' \(line"):
            policy_parameters(PolicyChoice(name=name, parameters={"x": 2}), where="p.yaml: spec.policy")


class TestObjectsOfACluster:
    def test_a_policy_that_the_controller_has_is_obeyed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        name = a_name()
        a_file(tmp_path, name=name)
        monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
        record = parse_policy(an_object(name, floorRatio=0.1))
        assert (record.invalid, record.document is not None) == (None, True)

    def test_a_path_is_refused_and_never_executed(self, tmp_path: Path) -> None:
        path = a_file(tmp_path, failing(f"open({str(tmp_path / 'executed')!r}, 'w')"))
        record = parse_policy(an_object(str(path)))
        assert record.document is None
        assert "is a file; here a policy is named by its name, and found in a folder" in (record.invalid or "")
        assert not (tmp_path / "executed").exists()

    @pytest.mark.parametrize(
        ("text", "sentence"),
        [
            (failing("1 / 0"), "ZeroDivisionError"),
            (deciding("return fair").replace("self.setting = setting", "{}['x']"), "failed: KeyError: 'x' (line"),
        ],
    )
    def test_one_that_cannot_be_loaded_or_made_is_refused_with_why_and_stops_no_watch(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, sentence: str
    ) -> None:
        name = a_name()
        a_file(tmp_path, text, name=name)
        monkeypatch.setenv("SLOPEWISE_POLICIES", str(tmp_path))
        record = parse_policy(an_object(name))
        assert record.document is None
        assert sentence in (record.invalid or "")


def an_object(name: str, **parameters: object) -> dict[str, object]:
    meta = {"name": "training", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": meta, "spec": {"policy": {"name": name, "parameters": parameters}}}


class TestScenarios:
    def test_a_scenario_names_files_beside_it_with_labels_and_parameters(self, tmp_path: Path) -> None:
        path = a_file(tmp_path)
        name = path.stem.replace("_", "-")
        half = {"name": f"./{path.name}", "label": "half", "parameters": {"floorRatio": 0.5}}
        runs = policy_runs(load_scenario(a_scenario(tmp_path, f"./{path.name}", half)))
        assert [(run.label, run.name, run.files) for run in runs] == [
            ("fair", "fair", ()),
            (name, name, (str(path),)),
            ("half", name, (str(path),)),
        ]

    def test_worker_processes_run_it_as_this_process_does(self, tmp_path: Path) -> None:
        path = a_file(tmp_path)
        scenario = load_scenario(a_scenario(tmp_path))
        alone, shared = (simulate(scenario, [1, 2], workers, policies=[str(path)]) for workers in (1, 2))
        assert alone.as_json() == shared.as_json()
        assert alone.policies == ("fair", path.stem.replace("_", "-"))

    def test_one_that_fails_ends_the_sweep_with_its_sentence(self, tmp_path: Path) -> None:
        path = a_file(tmp_path, deciding("return 1 / (4 - len(snapshot.jobs)) and fair"))
        scenario = load_scenario(a_scenario(tmp_path))
        with pytest.raises(SlopewiseError, match=r"mine: policy mine-\d+ failed: ZeroDivisionError: .* \(line \d+\)"):
            simulate(scenario, [1, 2], 2, policies=[str(path)])


class TestOnThisMachine:
    def test_a_demo_and_a_run_take_a_policys_file_without_a_document(self, tmp_path: Path) -> None:
        path = a_file(tmp_path)
        name = path.stem.replace("_", "-")
        assert run_names(replace(DEMO, policies=[str(path)]), None) == ["fair", name]
        named = document(None, str(path))
        assert (named.spec.policy.name, named.spec.mode) == (name, "Recommend")

    def test_a_run_gets_the_policy_once(self, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match="--policy and --policy-file contradict each other; write it into"):
            document(a_document(tmp_path, "las"), "las")


def test_from_a_new_file_to_a_simulation(tmp_path: Path) -> None:
    new = slopewise("policies", "new", "shortest-first", cwd=tmp_path)
    assert (new.returncode, new.stdout) == (0, "shortest_first.py\n")
    assert "slopewise policies check ./shortest_first.py" in new.stderr
    again = slopewise("policies", "new", "shortest-first", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == "slopewise: shortest_first.py: is there already; give another name, or remove it first.\n"
    checked = slopewise("policies", "check", "shortest_first.py", "--worlds", "5", "-o", "json", cwd=tmp_path)
    assert (checked.returncode, json.loads(checked.stdout)["kept"]) == (0, True)
    options = ("--policy", "./shortest_first.py", "--seeds", "1", "-o", "json")
    simulated = slopewise("simulate", a_scenario(tmp_path), "--workers", "1", *options, cwd=tmp_path)
    assert list(json.loads(simulated.stdout)["policies"]) == ["fair", "shortest-first"], simulated.stderr
    a_file(tmp_path, failing("1 / 0"), name="broken")
    listed = slopewise("policies", "--policies-dir", ".", "-o", "json", cwd=tmp_path)
    listed_mistakes = {policy["name"]: policy["mistake"] for policy in json.loads(listed.stdout)}
    assert listed_mistakes["shortest-first"] is listed_mistakes["flowcon"] is None
    assert "ZeroDivisionError" in listed_mistakes["broken"]


def test_a_check_that_fails_is_exit_code_1_and_a_file_that_cannot_be_loaded_2(tmp_path: Path) -> None:
    a_file(tmp_path, deciding("return None"), name="wrong")
    wrong = slopewise("policies", "check", "wrong.py", cwd=tmp_path)
    assert (wrong.returncode, "decide returned None" in wrong.stdout) == (1, True)
    a_file(tmp_path, "def", name="broken")
    broken = slopewise("policies", "check", "broken.py", cwd=tmp_path)
    assert (broken.returncode, broken.stdout, len(broken.stderr.splitlines())) == (2, "", 1)
