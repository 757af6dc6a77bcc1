"""`spec.placement`: which two policies go together, and the one sentence for those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.own_policy import a_file, a_name, deciding

from slopewise.composition import Composed
from slopewise.config.pass_settings import pass_settings, policy_of, with_interval
from slopewise.config.training_policy import TrainingPolicy, load_training_policy
from slopewise.config.validation import validate
from slopewise.errors import UsageError
from slopewise.own_policies.catalogue import use_folders

PLACING = "deadline, dqoes, draps, flowcon2, marginal, procon, specon"


def read(**spec: Any) -> TrainingPolicy:
    document = validate(TrainingPolicy, {"spec": {"mode": "Auto", **spec}}, where="p.yaml")
    return with_interval(document, scrape_interval_seconds=5.0)


def mistake(**spec: Any) -> str:
    with pytest.raises(UsageError) as caught:
        policy_of(read(**spec))
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_two_policies_are_composed_under_both_names_one_is_itself_and_in_mode_observe_none_decides() -> None:
    document = read(policy={"name": "flowcon"}, placement={"name": "specon", "parameters": {"alpha": 0.02}})
    assert isinstance(policy_of(document), Composed)
    assert pass_settings(document).policy_name == "flowcon+specon"
    alone, observing = read(policy={"name": "flowcon"}), read(mode="Observe", placement={"name": "specon"})
    assert type(policy_of(alone)).__module__ == "slopewise.policies.flowcon"
    assert pass_settings(alone).policy_name == "flowcon"
    assert type(policy_of(observing)).__module__ == "slopewise.policies.fair"


KUBE_DEFAULT = "policy kube-default: it is a baseline of the simulator, and Kubernetes itself places alike; "


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        *(({"placement": {"name": name}},
           (f"default: spec.placement.name: policy {name} chooses no nodes; use one that does: {PLACING}, "
            "or one of yours whose ACTIONS name it.")) for name in ("flowcon", "srpt-oracle")),
        *(({"policy": {"name": name}, "placement": {"name": "specon"}},
           (f"default: spec.policy.name: policy {name} only chooses nodes, which the placement specon does here; "
            "name one that decides CPU, or fair, which changes none.")) for name in ("specon", "kube-default")),
        ({"policy": {"name": "kube-default"}}, KUBE_DEFAULT + "write fair, and no placement."),
        ({"placement": {"name": "kube-default"}}, KUBE_DEFAULT + "write fair, and no placement."),
        ({"policy": {"name": "las"}}, "policy las: it is a baseline of the simulator; write fair or marginal."),
    ],
)  # fmt: skip
def test_two_that_do_not_go_together_and_simulated_ones_are_refused(spec: dict[str, Any], sentence: str) -> None:
    assert mistake(**spec) == sentence


@pytest.mark.parametrize(
    ("placement", "sentence"),
    [
        ({"name": "specn"}, "spec.placement.name: there is no policy 'specn'; did you mean 'specon'?"),
        ({"name": "specon", "parameters": {"alpha": 7}}, "spec.placement.parameters.alpha: must be less than"),
        ({"name": "specon", "parameters": {"beta": 2}}, "spec.placement.parameters.beta: unknown key"),
        ({}, "spec.placement.name: is required; add it"),
        ({"name": "specon", "intervalSeconds": 0}, "spec.placement.intervalSeconds: must be greater than or equal"),
    ],
)
def test_a_mistake_in_a_placement_is_named(placement: dict[str, Any], sentence: str) -> None:
    assert sentence in mistake(placement=placement)


def test_policies_of_the_users_can_have_either_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLOPEWISE_POLICIES", "")
    places, resizes = a_name(), a_name()
    a_file(tmp_path, deciding("return fair") + 'ACTIONS = ("place",)\n', name=places)
    a_file(tmp_path, name=resizes)
    use_folders([tmp_path])
    assert isinstance(policy_of(read(policy={"name": resizes}, placement={"name": places})), Composed)
    assert f"policy {resizes} chooses no nodes" in mistake(placement={"name": resizes})


def test_a_placement_may_be_a_file_beside_the_document(tmp_path: Path) -> None:
    path = a_file(tmp_path, deciding("return fair") + 'ACTIONS = ("migrate",)\n')
    (tmp_path / "p.yaml").write_text(f"spec: {{placement: {{name: ./{path.name}}}}}")
    document = load_training_policy(tmp_path / "p.yaml")
    assert document.spec.policy_name == f"marginal+{path.stem.replace('_', '-')}"


def test_an_action_that_there_is_not_is_a_mistake_of_the_file(tmp_path: Path) -> None:
    path = a_file(tmp_path, deciding("return fair") + 'ACTIONS = ("teleport",)\n')
    (tmp_path / "p.yaml").write_text(f"spec: {{policy: {{name: ./{path.name}}}}}")
    with pytest.raises(UsageError, match="ACTIONS has 'teleport'; a policy may resize, place and migrate"):
        load_training_policy(tmp_path / "p.yaml")
