"""docs/simulator.md: its reference names every key of a scenario with its default, its examples run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from slopewise.simulator.engine import run
from slopewise.simulator.results.measures import MEASURES
from slopewise.simulator.scenario.builtin_models import BUILT_IN, ModelSettings, SpikeSettings
from slopewise.simulator.scenario.curve_settings import CurveSettings
from slopewise.simulator.scenario.generate_settings import (
    Arrivals,
    Bursts,
    DeadlineGenerator,
    Generate,
    QoeGenerator,
    Sizes,
)
from slopewise.simulator.scenario.parts import JobSettings, NodeSettings, PolicyEntry
from slopewise.simulator.scenario.scenario import ScenarioSpec, load_scenario, policy_runs
from slopewise.simulator.sweep import simulate
from slopewise.simulator.workload import draw
from slopewise.simulator.world.accelerators import Accelerator

PAGE = (Path(__file__).parents[2] / "docs/simulator.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
REFERENCE: dict[str, type[BaseModel]] = {
    "spec": ScenarioSpec,
    "spec.nodes": NodeSettings,
    "spec.jobs": JobSettings,
    "spec.jobs.accelerator": Accelerator,
    "spec.generate": Generate,
    "spec.generate.arriveSeconds": Arrivals,
    "spec.generate.arriveSeconds.bursts": Bursts,
    "spec.generate.sizes": Sizes,
    "spec.generate.qoe": QoeGenerator,
    "spec.generate.deadlines": DeadlineGenerator,
    "spec.models": ModelSettings,
    "spec.models.spikes": SpikeSettings,
    "spec.policies": PolicyEntry,
}
KEYS = [
    pytest.param(field, section, id=f"{section}.{field.alias or name}")
    for section, model in REFERENCE.items()
    for name, field in model.model_fields.items()
]


def rows(heading: str) -> dict[str, list[str]]:
    """The cells of the first table under this heading, by what its first cell names in code."""
    (section,) = re.findall(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    found = re.findall(r"^\| `([^`|]+)` \|(.*)\|$", section, re.MULTILINE)
    assert len({name for name, _ in found}) == len(found), "a row stands twice"
    return {name: [cell.strip() for cell in rest.split("|")] for name, rest in found}


def key_of(field: FieldInfo, names: Sequence[str]) -> str:
    (key,) = [name for name in names if name == field.alias]
    return key


def valid(field: FieldInfo, value: object) -> object:
    """A value as the scenario would hold it."""
    checks: Any = Annotated[(field.annotation, "the field's own checks", *field.metadata)]
    return TypeAdapter(checks).validate_python(value)


@pytest.mark.parametrize("section", REFERENCE)
def test_every_key_is_in_the_reference_in_the_order_of_the_schema_and_no_other_is(section: str) -> None:
    assert list(rows(section)) == [field.alias or name for name, field in REFERENCE[section].model_fields.items()]


@pytest.mark.parametrize(("field", "section"), KEYS)
def test_every_default_is_the_one_of_the_schema(field: FieldInfo, section: str) -> None:
    key = key_of(field, list(rows(section)))
    written = rows(section)[key][0]
    code = re.fullmatch(r"`(.*)`", written)
    if field.is_required():
        assert written == "required"
    elif code:
        assert valid(field, yaml.safe_load(code[1])) == valid(field, field.get_default(call_default_factory=True))
    else:
        assert written != "required"
        assert field.get_default(call_default_factory=True) in (None, [], {}), "a default in words stands for nothing"


def test_every_curve_and_its_parameters_are_reported() -> None:
    written = rows("Curves")
    assert list(written) == list(CurveSettings.model_fields)
    for name, field in CurveSettings.model_fields.items():
        kinds = [kind for kind in getattr(field.annotation, "__args__", ()) if isinstance(kind, type)]
        settings = next((kind for kind in kinds if issubclass(kind, BaseModel)), None)
        parameters = [each.alias for each in settings.model_fields.values()] if settings else []
        assert re.findall(r"`(\w+)`", written[name][0]) == parameters


def test_every_built_in_model_is_reported_with_its_work_and_its_cores() -> None:
    written = {name: (cells[0], float(cells[1])) for name, cells in rows("Built-in models").items()}
    assert written == {
        name: (f"{model.work_cpu_seconds[0]:g}" if model.work_cpu_seconds else "–", model.parallelism)
        for name, model in BUILT_IN.items()
    }


def test_every_figure_is_reported() -> None:
    assert list(rows("Figures")) == [*(measure.name for measure in MEASURES), "overlap_seconds_K"]


def test_every_figure_of_which_more_is_better_says_so() -> None:
    said = {name for name, cells in rows("Figures").items() if "more is better" in cells[0]}
    assert said == {measure.name for measure in MEASURES if measure.better == "more"}


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_is_a_scenario_that_runs(text: str, tmp_path: Path) -> None:
    for name, table in re.findall(r"^```text\n# (\S+\.csv)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        (tmp_path / name).write_text(table)
    (tmp_path / "example.yaml").write_text(text)
    scenario = load_scenario(str(tmp_path / "example.yaml"))
    instance = draw(scenario, 1)
    for policy in policy_runs(scenario):
        outcome = run(instance, policy)
        trainings = [job for job in outcome.jobs if job.qoe_seconds is None]
        assert trainings
        assert all(job.finished_seconds is not None for job in trainings)


def test_the_json_example_has_the_shape_of_what_is_printed() -> None:
    (text,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    written = json.loads(text)
    result = simulate(load_scenario("flowcon-fixed"), range(1, 3), 1, policies=["flowcon"])
    assert shape_within(written, result.as_json())


def shape_within(written: Any, printed: Any) -> bool:
    """Every key of one is a key of the other, down to the figures."""
    if not isinstance(written, dict):
        return isinstance(written, type(printed)) and not isinstance(printed, dict)
    return all(key in printed and shape_within(value, printed[key]) for key, value in written.items())
