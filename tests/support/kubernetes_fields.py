"""Compares manifests with the schemas of their kinds, without a cluster: our definitions, and the client's models."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubernetes import client

from slopewise.crds.schema.definitions import definitions

_SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float), "datetime": str}


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
