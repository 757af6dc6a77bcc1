"""Every manifest that a page shows, and every one in examples/: valid by the definition or the model of its kind."""

from __future__ import annotations

import copy
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client

from slopewise.crds.schema.definitions import definitions

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
_SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": str}


# --- schemas of kinds, without a cluster: our definitions, and the client's models ---------------------------------


def mistakes_by_definition(document: dict[str, Any]) -> list[str]:
    """What the API server would refuse or prune of a custom resource of ours."""
    # It compiles 38 grammars, a third of the time of collecting tests, which every worker does.
    import jsonschema  # type: ignore[import-untyped]  # noqa: PLC0415

    for definition in definitions().values():
        if definition["spec"]["names"]["kind"] == document["kind"]:
            schema = _strict(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
            # OpenAPI 3.0 writes exclusive bounds as booleans, as JSON Schema did in its fourth draft.
            found = jsonschema.Draft4Validator(schema).iter_errors(document)
            return [f"{'.'.join(map(str, each.absolute_path))}: {each.message}" for each in found]
    return [f"no kind {document['kind']}"]


def mistakes_by_model(document: dict[str, Any], model: str) -> list[str]:
    """Fields of a manifest that the kind does not have, or whose value has another type."""
    return list(_mistakes(document, model, document["kind"]))


def _strict(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every field refused that is not in it; the metadata of an object is the API server's own."""
    strict = {key: _strict(value) if isinstance(value, dict) else value for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        strict["type"] = ["integer", "string"]
    if "properties" in schema:
        strict["properties"] = {key: _strict(value) for key, value in schema["properties"].items()}
        strict.setdefault("additionalProperties", False)
        if "spec" in schema["properties"] and "metadata" in schema["properties"]:
            strict["properties"]["metadata"] = {"type": "object"}
    return strict


def _mistakes(value: Any, model: str, where: str) -> Iterator[str]:
    if model.startswith(("List[", "list[")):
        if not isinstance(value, list):
            yield f"{where}: no list"
            return
        for place, each in enumerate(value):
            yield from _mistakes(each, model[5:-1], f"{where}[{place}]")
    elif mapping := re.fullmatch(r"[Dd]ict[\[(](\w+), (.+)[\])]", model):
        for key, each in value.items():
            yield from _mistakes(each, mapping[2], f"{where}.{key}")
    elif model in _SCALARS:
        if not isinstance(value, _SCALARS[model]):  # type: ignore[arg-type]
            yield f"{where}: {value!r} is no {model}"
    elif model != "object":
        yield from _mistakes_in_object(value, getattr(client, model), where)


def _mistakes_in_object(value: Any, kind: Any, where: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{where}: no mapping"
        return
    fields = {name: kind.openapi_types[attribute] for attribute, name in kind.attribute_map.items()}
    for key, each in value.items():
        if key in fields:
            yield from _mistakes(each, fields[key], f"{where}.{key}")
        else:
            yield f"{where}: no field {key}"


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
