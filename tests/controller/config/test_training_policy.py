"""A user's document: what is accepted, and the one sentence for what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from slopewise.config.quantities import cpu_quantity, parse_cpu_millicores
from slopewise.config.training_policy import PolicyChoice, TrainingPolicy, load_training_policy, policy_parameters
from slopewise.config.validation import validate
from slopewise.errors import UsageError


def mistake(document: object) -> str:
    with pytest.raises(UsageError) as caught:
        validate(TrainingPolicy, document, where="p.yaml")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_an_empty_document_is_safe() -> None:
    spec = validate(TrainingPolicy, {}, where="p").spec
    assert spec.mode == "Recommend"
    assert (spec.resources.control, spec.resources.cpu.min) == ("requests", 100)


@pytest.mark.parametrize(("written", "millicores"), [("250m", 250), ("2", 2000), (0.5, 500), (4, 4000), ("1.5", 1500)])
def test_cpu_quantities(written: object, millicores: int) -> None:
    assert parse_cpu_millicores(written) == millicores


@pytest.mark.parametrize(("millicores", "quantity"), [(250, "250m"), (2000, "2"), (1, "1m"), (1500, "1500m"), (0, "0")])
def test_millicores_are_written_as_kubernetes_prints_them(millicores: int, quantity: str) -> None:
    assert cpu_quantity(millicores) == quantity


@pytest.mark.parametrize(
    ("part", "written", "sentence"),
    [
        ("behaviour", {"interval": 3}, ".interval: unknown key; did you mean 'intervalSeconds'?"),
        (
            "behaviour",
            {"gpu": 3},
            (
                ".gpu: unknown key; remove it or use one of backoffSeconds, canaryRatio, cooldownSeconds, "
                "deferredDeadlineSeconds, intervalSeconds, maxStepRatio, minChangeRatio."
            ),
        ),
        (
            "behaviour",
            {"maxStepRatio": 1.05},
            (
                ": maxStepRatio 1.05 allows decreases of 5% at most, and minChangeRatio 0.1 forbids them; "
                "raise the first or lower the second."
            ),
        ),
        ("behaviour", {"maxHoldSeconds": 60}, ".maxHoldSeconds: no arrival is held back any more; remove it."),
        ("resources", {"cpu": {"min": "3", "max": "2"}}, ".cpu: min 3 is above max 2; swap them."),
        ("resources", {"cpu": {"min": 100}}, ".cpu: min 100 is above max 64; did you mean 100m?"),
        ("resources", {"cpu": {"min": 250, "max": "100m"}}, ".cpu: min 250 is above max 100m; swap them."),
        (
            "resources",
            {"cpu": {"min": "250x"}},
            ".cpu.min: '250x' is not a CPU quantity; write millicores as 250m or cores as 0.25.",
        ),
        ("mode", "auto", ": must be 'Observe', 'Recommend', 'Canary' or 'Auto', not 'auto'; did you mean 'Auto'?"),
        (
            "tenancy",
            {"maxGuaranteedCpuRatio": 0.5},
            ".maxGuaranteedCpuRatio: arriving jobs start with the CPU that they request; remove it.",
        ),
    ],
)
def test_a_mistake_is_one_sentence_with_place_and_remedy(part: str, written: object, sentence: str) -> None:
    assert mistake({"spec": {part: written}}) == f"p.yaml: spec.{part}{sentence}"


def test_another_kind_of_document_is_a_mistake() -> None:
    assert mistake({"kind": "Policy"}) == "p.yaml: kind: must be 'TrainingPolicy', not 'Policy'."
    assert mistake(["spec"]) == "p.yaml: must be a mapping of keys to values, not list; see the README's example."


@pytest.mark.parametrize(
    ("policy", "key", "sentence"),
    [
        ("deadline", "sizeArrivals", "arriving jobs start with the CPU that they request; remove it"),
        ("deadline", "hysteresisRatio", "write `minChangeRatio` under `behaviour` to leave small changes out"),
        ("deadline", "profilingSeconds", "a job has an even share until its steps are timed; remove it"),
    ],
)
def test_a_parameter_that_there_was_is_refused_with_what_happens_now(policy: str, key: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        policy_parameters(PolicyChoice(name=policy, parameters={key: True}), where="p.yaml: spec.policy")
    assert str(caught.value) == f"p.yaml: spec.policy.parameters.{key}: {sentence}."


def test_further_mistakes_are_counted() -> None:
    both = {"spec": {"mode": "x", "behaviour": {"intervalSeconds": -1}}}
    assert mistake(both).endswith("(1 more mistake after it).")
    meant = {"spec": {"mode": "auto", "behaviour": {"intervalSeconds": -1}}}
    assert mistake(meant).endswith("did you mean 'Auto'? (1 more mistake after it).")


@pytest.mark.parametrize("text", ["a: [", "\tx: 1"])
def test_a_file_that_is_not_yaml_is_named_with_its_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"p\.yaml: line \d+ is not valid YAML"):
        load_training_policy(path)


@pytest.mark.parametrize(("text", "why"), [("name: 2026-31-12", r" \(month must be in 1..12.*\)"), ("[" * 9999, "")])
def test_what_only_looks_like_a_date_or_has_no_end_is_a_mistake_of_the_file(
    tmp_path: Path, text: str, why: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=rf"p\.yaml: is not valid YAML{why}; correct its syntax"):
        load_training_policy(path)


def test_a_missing_or_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_training_policy(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        load_training_policy(tmp_path / "binary.yaml")
