"""The resource definitions: structural, up to date, and with a rule for each check that a schema cannot make."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from slopewise import policies
from slopewise.config.training_policy import TrainingPolicy
from slopewise.crds.__main__ import FOLDER, main, outdated
from slopewise.crds.schema.definitions import definitions, job_growths, patches, training_policies
from slopewise.crds.schema.from_models import Translation
from slopewise.crds.schema.parameters import parameters_rules, parameters_schema, runnable_policies
from slopewise.policies import PolicyFile, PolicyParameters, parameter

BOTH = list(definitions().values())


def schema_of(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every schema in a schema, with its path."""
    yield path, schema
    for key, each in schema.get("properties", {}).items():
        yield from nodes(each, f"{path}.{key}")
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from nodes(schema[key], f"{path}.{key}")


def test_the_committed_definitions_are_up_to_date() -> None:
    assert outdated(FOLDER) == {}, "run `make generate` and commit the result"


def test_check_says_what_is_out_of_date(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--folder", str(tmp_path), "--check"]) == 1
    assert "out of date" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert main(["--folder", str(tmp_path)]) == 0
    assert main(["--folder", str(tmp_path), "--check"]) == 0
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.yaml")} == {
        "crds/trainingpolicies.yaml",
        "crds/jobgrowths.yaml",
        "crds/freezes.yaml",
        "components/policies/admits-others.yaml",
    }
    assert yaml.safe_load((tmp_path / "crds/jobgrowths.yaml").read_text()) == job_growths()


@pytest.mark.parametrize("definition", BOTH, ids=lambda each: each["metadata"]["name"])
def test_schemas_are_structural(definition: dict[str, Any]) -> None:
    """What the API server refuses or ignores: references, unions, titles, formats of ours, closed objects."""
    for path, schema in nodes(schema_of(definition)):
        assert not {"$ref", "$defs", "allOf", "oneOf", "anyOf", "title", "const"} & set(schema), path
        assert schema.get("additionalProperties", {}) is not False, path
        assert ("type" in schema) != schema.get("x-kubernetes-int-or-string", False), path
        assert schema.get("format", "date-time") == "date-time", path
        assert not ("properties" in schema and "additionalProperties" in schema), path


_OF_KUBERNETES = ("items", "additionalProperties", "matchLabels", "matchExpressions", "key", "operator", "values")
"""A label selector needs no words of ours."""


def test_every_field_that_people_write_is_explained() -> None:
    spec = schema_of(training_policies())["properties"]["spec"]
    ours = [(path, schema) for path, schema in nodes(spec) if not path.endswith(_OF_KUBERNETES)]
    assert [path for path, schema in ours if "description" not in schema] == []


def test_defaults_are_those_of_files() -> None:
    """What the API server fills in is what a file without the key means."""
    default = schema_of(training_policies())["properties"]["spec"]["default"]
    assert TrainingPolicy.model_validate({"spec": default}) == TrainingPolicy()
    assert default["resources"]["cpu"] == {"min": "100m", "max": "64"}


@pytest.mark.parametrize("policy", runnable_policies(), ids=lambda policy: policy.name)
def test_every_parameter_of_every_policy_can_be_written(policy: PolicyFile) -> None:
    known = parameters_schema(runnable_policies())["properties"]
    of_policy = policy.parameters.model_json_schema(by_alias=True).get("properties", {})
    assert set(of_policy) <= set(known)
    for key, schema in of_policy.items():
        assert known[key]["type"] == schema["type"]
        assert policy.name in known[key]["description"]
        assert schema["unit"] in known[key]["description"]


def test_bounds_that_policies_agree_on_are_in_the_schema_and_others_in_rules() -> None:
    known = parameters_schema(runnable_policies())["properties"]
    assert (known["endingScrapes"]["minimum"], known["endingScrapes"]["maximum"]) == (0, 100)
    assert "maximum" not in known["alpha"]
    messages = [
        rule.message for rule in parameters_rules(runnable_policies()) if rule.field_path == ".parameters.alpha"
    ]
    assert "must be greater than 0 and less than 1 for dqoes" in messages
    assert "must be greater than 0 and less than or equal to 1 for flowcon" in messages


def test_a_definition_that_admits_others_takes_any_key_and_keeps_the_bounds_of_shipped_policies_in_rules() -> None:
    schema = parameters_schema(runnable_policies(), others=True)
    assert schema["x-kubernetes-preserve-unknown-fields"] is True
    assert {key for each in schema["properties"].values() for key in each} == {"type", "description"}
    rules = parameters_rules(runnable_policies(), others=True)
    stated = {(rule.field_path, rule.message) for rule in rules}
    assert (
        ".parameters.endingScrapes",
        "must be greater than or equal to 0 and less than or equal to 100 for deadline",
    ) in stated
    assert (".parameters.alphaPer", "must be one of interval, minute, second for flowcon") in stated
    (alpha,) = [rule.rule for rule in rules if rule.field_path == ".parameters.beta" and "in [" in rule.rule]
    assert alpha.endswith(
        "|| !(self.name.replace('_', '-') in " + str([each.name for each in runnable_policies()]) + ")"
    )


def test_the_component_patches_nothing_but_the_choice_of_the_policy() -> None:
    (operations,) = patches().values()
    strict, open_ = training_policies(), training_policies(others=True)
    for patch in operations:
        at_strict: Any = strict
        *way, last = patch["path"].strip("/").split("/")
        for key in way:
            at_strict = at_strict[int(key) if key.isdigit() else key]
        at_strict[last] = patch["value"]
    assert [patch["path"].rpartition("/")[2] for patch in operations] == ["policy", "placement"]
    assert ({patch["op"] for patch in operations}, strict == open_) == ({"replace"}, True)


def test_a_key_that_is_a_number_here_and_a_word_there_cannot_be_generated() -> None:
    class Words(PolicyParameters):
        alpha: str = parameter("a", unit="word", source="test", description="a word")

    odd = PolicyFile("odd", "", "", Words, "", policies.find("fair").build)
    with pytest.raises(ValueError, match="alpha is a number and a string"):
        parameters_schema([policies.find("flowcon"), odd])


def test_a_union_cannot_be_generated() -> None:
    class Either(BaseModel):
        value: int | str = 1

    with pytest.raises(ValueError, match="no structural schema"):
        Translation().structural(Either)


def test_what_get_prints_is_in_the_status() -> None:
    properties = schema_of(job_growths())["properties"]["status"]["properties"]
    for column in job_growths()["spec"]["versions"][0]["additionalPrinterColumns"]:
        path = column["jsonPath"].split(".")
        assert path[1] == "metadata" or path[2] in properties
