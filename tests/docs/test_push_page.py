"""docs/exporters-push.md: its variables, times and names are those of the code, and the examples have them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from slopewise_exporter import otlp, push, trainjob_status

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/exporters-push.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples/cluster"


@pytest.mark.parametrize(
    "name",
    [trainjob_status.SERVER_URL, *otlp.ENDPOINTS, otlp.PROTOCOLS[1], otlp.INTERVAL, "POD_NAME"],
)
def test_it_names_what_is_read(name: str) -> None:
    assert f"`{name}`" in PAGE or f"`{name}=" in PAGE or f"name: {name}," in PAGE


def test_its_times_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    assert f"posts every {trainjob_status.EVERY_SECONDS:g} s" in text
    assert f"its default here is {1000 * otlp.EVERY_SECONDS:,.0f}" in text
    assert f"at most {push.FLUSH_SECONDS:g} s ({push.HURRIED_FLUSH_SECONDS:g} s after" in text


def containers(name: str) -> list[dict[str, Any]]:
    document = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = document["spec"]["template"]["spec"]["containers"]
    return found


def test_the_job_that_pushes_names_its_receiver_and_its_pod() -> None:
    (trainer,) = containers("job-otlp.yaml")
    environment = {each["name"]: each for each in trainer["env"]}
    assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"]["value"].endswith("/api/v1/otlp")
    fields = {name: environment[name]["valueFrom"]["fieldRef"]["fieldPath"] for name in ("POD_NAME", "POD_NAMESPACE")}
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}
    assert "ports" not in trainer


def test_the_trainjob_is_managed_and_names_nothing_of_the_exporter() -> None:
    text = (EXAMPLES / "trainjob.yaml").read_text(encoding="utf-8")
    (patch,) = yaml.safe_load(text)["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["template"]["spec"]["template"]["metadata"]["labels"] == {"slopewise.dev/managed": "true"}
    assert "KUBEFLOW_TRAINER" not in text
