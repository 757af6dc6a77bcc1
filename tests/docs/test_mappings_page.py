"""docs/exporters-mappings.md against the presets, the messages and the defaults of the code."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from support.command_line import slopewise

from slopewise.adapters.prometheus.evaluations import _step_warning
from slopewise.adapters.prometheus.missing_evaluations import _preset
from slopewise.adapters.prometheus.queries import STEP_LABELS
from slopewise.config.metric_mappings import EVALUATION_PRESETS, RESPONSE_PRESETS, EvaluationMapping, ResponseMapping
from slopewise.config.training_policy import load_training_policy
from slopewise_exporter.asgi import ResponseTimes
from slopewise_exporter.responses import UNTIMED_PATHS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/exporters-mappings.md").read_text(encoding="utf-8")
EXAMPLES = sorted((ROOT / "examples/mappings").glob("*.yaml"))
UNITS = {"s": "seconds", "ms": "milliseconds", "µs": "microseconds"}


def table(header: str) -> list[list[str]]:
    """The rows of the table that begins with this header, as cells without their code marks."""
    lines = PAGE.split(f"| {header} |\n")[1].splitlines()[1:]
    rows = [line for line in lines[: lines.index("")] if line]
    return [[cell.strip().replace("`", "") for cell in row.strip("|").split("|")] for row in rows]


def test_the_table_of_training_presets_is_that_of_the_code() -> None:
    rows = {name: (loss, steps) for name, loss, steps, _ in table("preset | loss | steps | source")}
    assert set(rows) == set(EVALUATION_PRESETS)
    for name in EVALUATION_PRESETS:
        mapping = EvaluationMapping(preset=name)
        steps = "not exported" if mapping.steps_total is None else mapping.steps_total.metric
        assert rows[name] == (mapping.metric, steps)


def test_the_table_of_response_presets_is_that_of_the_code() -> None:
    header = "preset | time | unit | responses | failed | in flight | source"
    rows = {name: cells for name, *cells, _ in table(header)}
    assert set(rows) == set(RESPONSE_PRESETS)
    for name in RESPONSE_PRESETS:
        mapping = ResponseMapping(preset=name)
        time, unit, count, failed, in_flight = rows[name]
        assert (time, UNITS[unit], count) == (mapping.metric, mapping.unit, mapping.count or "histogram")
        assert in_flight == (" + ".join(mapping.in_flight) or "not exported")
        labels = [f"{label} of {', '.join(values)}" for label, values in mapping.failed.items()]
        assert failed == (mapping.failed_count or ", ".join(labels) or "not told apart")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_a_policy_that_the_page_or_its_table_names(path: Path) -> None:
    spec = load_training_policy(path).spec
    assert spec.mode == "Recommend"
    assert (spec.evaluation, spec.responses) != (EvaluationMapping(), ResponseMapping())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == 4


@pytest.mark.parametrize(
    "spec", ["{responses: {preset: vlm}}", "{evaluation: {metric: 'loss{}'}}"], ids=["preset", "metric"]
)
def test_a_mistake_is_the_sentence_that_the_page_shows_and_status_2(tmp_path: Path, spec: str) -> None:
    (tmp_path / "policy.yaml").write_text(f"spec: {spec}\n", encoding="utf-8")
    (tmp_path / "jobs.yaml").write_text('[{name: a, command: "true"}]\n', encoding="utf-8")
    result = slopewise("run", "--local", "--jobs", "jobs.yaml", "--policy-file", "policy.yaml", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    (line,) = [line for line in result.stderr.splitlines() if line.strip()]
    assert line in PAGE.splitlines()


def test_the_message_about_a_growing_label_and_its_names_are_those_of_the_code() -> None:
    assert _step_warning("training_loss", "it") in PAGE.splitlines()
    *first, last = (f"`{label}`" for label in STEP_LABELS)
    assert f"{', '.join(first)} and {last} are recognised by name" in PAGE


def test_the_preset_that_a_message_proposes_is_one() -> None:
    assert _preset({"go_threads", "trainer_loss"}) == ("trainer_loss", "spec.evaluation.preset: prime-rl")
    assert "it has\ntrainer_loss: write spec.evaluation.preset: prime-rl" in PAGE
    assert _preset({"vllm:e2e_request_latency_seconds_count"}) == (
        "vllm:e2e_request_latency_seconds",
        "spec.responses.preset: vllm",
    )
    assert _preset({"nv_inference_request_duration_us"}) == (
        "nv_inference_request_duration_us",
        "spec.responses.preset: triton",
    )
    assert _preset({"training_loss"}) is None


def test_the_arguments_of_the_middleware_are_those_of_the_code() -> None:
    (arguments,) = [row for row in table("argument | default |") if row[0] == "exclude"]
    assert arguments[1].split(", ") == sorted(UNTIMED_PATHS)
    parameters = set(inspect.signature(ResponseTimes).parameters) - {"app"}
    named = {name for row in table("argument | default |") for name in row[0].split(", ")}
    assert named == parameters
