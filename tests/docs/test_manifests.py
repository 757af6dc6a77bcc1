"""Every manifest that a page shows, and every one in examples/: valid by the definition or the model of its kind."""

from __future__ import annotations

import copy
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.kubernetes_fields import mistakes_by_definition, mistakes_by_model

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), ROOT / "exporters/README.md", *ROOT.glob("docs/*.md")])
BLOCK = re.compile(r"^( *)```yaml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
MODELS = {("batch/v1", "Job"): "V1Job", ("v1", "Pod"): "V1Pod"}
ELSEWHERE = {
    "Application",  # of Argo CD: tests/manifests compares what it says with the code
    "Kustomization",  # rendered by tests/manifests
    "Scenario",  # run by test_simulator_page.py
    "TrainJob",  # tests/cluster applies examples/cluster/trainjob.yaml
}
"""Kinds whose schemas are not here, and where they are tested."""


def manifests() -> list[Any]:
    """The documents with a kind, each named by the file that has it."""
    found = [
        (page, document)
        for page in PAGES
        for _, code in BLOCK.findall(page.read_text(encoding="utf-8"))
        for document in yaml.safe_load_all(textwrap.dedent(code))
    ]
    found += [
        (file, document)
        for file in sorted(ROOT.glob("examples/**/*.yaml"))
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
    ]
    return [
        pytest.param(document, id=f"{file.relative_to(ROOT)}-{document['kind']}-{place}")
        for place, (file, document) in enumerate(found)
        if isinstance(document, dict) and "kind" in document and document["kind"] not in ELSEWHERE
    ]


MANIFESTS = manifests()


def mistakes(document: dict[str, Any]) -> list[str]:
    """What the API server would refuse of it."""
    if document["apiVersion"].startswith("slopewise.dev/"):
        return mistakes_by_definition(document)
    return mistakes_by_model(document, MODELS[document["apiVersion"], document["kind"]])


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_manifest_is_valid(manifest: dict[str, Any]) -> None:
    assert mistakes(manifest) == []


def test_policies_and_jobs_are_among_them() -> None:
    kinds = {each.values[0]["kind"] for each in MANIFESTS}
    assert kinds >= {"TrainingPolicy", "Job"}


@pytest.mark.parametrize(
    ("path", "value", "mistake"),
    [
        (("spec", "mode"), "auto", "'auto' is not one of"),
        (("spec", "behaviour", "canaryRatio"), 2, "2 is greater than"),
        (("spec", "behaviour", "intervalSecond"), 20, "'intervalSecond' was unexpected"),
        (("spec", "resources", "cpu", "min"), ["20m"], "is not of type"),
    ],
)
def test_a_mistake_in_a_policy_is_found(path: tuple[str, ...], value: Any, mistake: str) -> None:
    policy = yaml.safe_load((ROOT / "examples/cluster/policy.yaml").read_text(encoding="utf-8"))
    place = policy
    for key in path[:-1]:
        place = place.setdefault(key, {})
    place[path[-1]] = value

    (found,) = mistakes(policy)

    assert mistake in found


@pytest.mark.parametrize(
    ("key", "value", "mistake"),
    [
        ("restartpolicy", "Never", "Job.spec.template.spec: no field restartpolicy"),
        ("containers", {"name": "trainer"}, "Job.spec.template.spec.containers: no list"),
        ("restartPolicy", 1, "Job.spec.template.spec.restartPolicy: 1 is no str"),
    ],
)
def test_a_mistake_in_a_job_is_found(key: str, value: Any, mistake: str) -> None:
    job = copy.deepcopy(yaml.safe_load((ROOT / "examples/cluster/job.yaml").read_text(encoding="utf-8")))
    job["spec"]["template"]["spec"][key] = value

    assert mistakes(job) == [mistake]
