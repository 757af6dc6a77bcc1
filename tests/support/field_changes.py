"""Every change of an object, one field at a time, as JSON patches: of fields that it has, and of those it could have.

`of_every_field` follows the API server's own schema, so that the fields of a later Kubernetes are among them;
`of_unknown_fields` follows the object, and adds to each part of it a field that no schema has.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Operation = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
TOMORROW = "fieldOfTomorrow"

_DEEPEST = 12
"""Parts of a schema that hold themselves end here."""


@dataclass(frozen=True)
class Change:
    """One operation of a JSON patch; `path` is its pointer, e.g. `/spec/containers/0/image`."""

    operation: Operation

    @property
    def path(self) -> str:
        return str(self.operation["path"])

    def __str__(self) -> str:
        return f"{self.operation['op']} {self.path}"


def add(path: str, value: Any) -> Change:
    return Change({"op": "add", "path": path, "value": value})


def replace(path: str, value: Any) -> Change:
    return Change({"op": "replace", "path": path, "value": value})


def remove(path: str) -> Change:
    return Change({"op": "remove", "path": path})


def pointer(parent: str, key: str | int) -> str:
    """RFC 6901."""
    return f"{parent}/{str(key).replace('~', '~0').replace('/', '~1')}"


# --- what no schema has ------------------------------------------------------------------------------------


def of_unknown_fields(value: Any, path: str = "") -> Iterator[Change]:
    """Of each part: a field more, each field gone, each value another one, a list longer or in another order."""
    if isinstance(value, Mapping):
        yield add(pointer(path, TOMORROW), {"a": 1})
        for key, each in value.items():
            here = pointer(path, key)
            yield remove(here)
            yield from of_unknown_fields(each, here)
    elif isinstance(value, list):
        yield add(f"{path}/-", copy.deepcopy(value[-1]) if value else {TOMORROW: 1})
        if value != value[::-1]:
            yield replace(path, value[::-1])
        for index, each in enumerate(value):
            yield remove(pointer(path, index))
            yield from of_unknown_fields(each, pointer(path, index))
    else:
        yield replace(path, _another(value))


def _another(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + 1
    return f"{value}1" if isinstance(value, str) else "1"


# --- what a schema has -------------------------------------------------------------------------------------

_TEXT = "tomorrow"
_NAME = "example.org/tomorrow"
"""Of a finalizer, say: in lists of texts and in maps many are names with a domain."""

_QUANTITIES = {"cpu": "1", "memory": "96Mi", "ephemeral-storage": "96Mi"}


@dataclass(frozen=True)
class Schemas:
    """The schemas of one API group's version, as `/openapi/v3` has them."""

    components: Mapping[str, Any]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Schemas:
        return cls(document["components"]["schemas"])

    def of_kind(self, kind: str) -> Json:
        """The schema of this kind, whose name ends with it."""
        (found,) = [name for name in self.components if name.rpartition(".")[2] == kind]
        return dict(self.components[found])

    def of_every_field(self, schema: Mapping[str, Any], value: Any, path: str = "") -> Iterator[Change]:
        """Each field that the object has goes or gets another value, and each that it could have beside gets one."""
        schema = self._resolved(schema)
        if isinstance(value, Mapping):
            yield from self._of_object(schema, value, path)
        elif isinstance(value, list):
            item = schema.get("items", {})
            yield add(f"{path}/-", self._sample(item))
            for index, each in enumerate(value):
                yield from self.of_every_field(item, each, pointer(path, index))
        else:
            others = [each for each in schema.get("enum", ()) if each != value]
            yield from (replace(path, other) for other in others or [_another(value)])

    def _of_object(self, schema: Mapping[str, Any], value: Mapping[str, Any], path: str) -> Iterator[Change]:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
        for name, each in value.items():
            here = pointer(path, name)
            yield remove(here)
            if self._is_quantity(others):
                yield replace(here, _QUANTITIES[name])
            else:
                yield from self.of_every_field(properties.get(name, others), each, here)
        for name, inner in properties.items():
            if name not in value:
                yield from (add(pointer(path, name), each) for each in self._samples(inner))
        for name, sample in self._map_of(others).items() if others else ():
            if name not in value:
                yield add(pointer(path, name), sample)

    def _samples(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """Values for a field: whole, and each of its parts alone where none of them must be there."""
        schema = self._resolved(schema)
        yield self._sample(schema)
        if not schema.get("required"):
            for name, inner in schema.get("properties", {}).items():
                yield {name: self._sample(inner)}

    def _sample(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        """All that it must have, or all that it may where nothing must be there."""
        schema = self._resolved(schema)
        if depth > _DEEPEST:
            return None
        if properties := schema.get("properties"):
            wanted = schema.get("required") or (properties if depth < 2 else list(properties)[:1])
            return {name: self._sample(properties[name], depth + 1) for name in wanted}
        if others := schema.get("additionalProperties"):
            return self._map_of(others, depth)
        if schema.get("type") == "array":
            item = self._sample(schema.get("items", {}), depth + 1)
            return [_NAME if item == _TEXT else item]
        return _scalar(schema)

    def _map_of(self, schema: Any, depth: int = 0) -> Json:
        """Names are made up, but those of resources, which Kubernetes knows."""
        if self._is_quantity(schema):
            return {name: _QUANTITIES[name] for name in ("cpu", "memory")}
        return {_NAME: self._sample(schema if isinstance(schema, Mapping) else {}, depth + 1)}

    def _is_quantity(self, schema: Any) -> bool:
        return isinstance(schema, Mapping) and "Quantity" in str(self._resolved(schema).get("description"))

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        """With what it refers to, alone or as the one part of `allOf`."""
        while reference := next((each["$ref"] for each in (schema, *schema.get("allOf", ())) if "$ref" in each), None):
            schema = self.components[str(reference).rpartition("/")[2]]
        return schema


def _scalar(schema: Mapping[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    if "time" in str(schema.get("format")):
        return "2030-01-01T00:00:00Z"
    return {"boolean": True, "string": _TEXT, "object": {}}.get(str(schema.get("type")), 7)


# --- the outcome of a change ---------------------------------------------------------------------------------


def applied(document: Json, *changes: Change) -> Json:
    """The document as the changes leave it; a path that is not there is an error."""
    root = {"": copy.deepcopy(document)}
    for change in changes:
        parent: Any = root
        *parts, last = ["", *(_unescaped(part) for part in change.path.split("/")[1:])]
        for part in parts:
            parent = parent[int(part) if isinstance(parent, list) else part]
        _carry_out(change.operation, parent, last)
    return root[""]


def _unescaped(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _carry_out(operation: Operation, parent: Any, key: str) -> None:
    if not isinstance(parent, list):
        if operation["op"] == "remove":
            del parent[key]
        else:
            parent[key] = copy.deepcopy(operation["value"])
    elif operation["op"] == "remove":
        del parent[int(key)]
    elif key == "-":
        parent.append(copy.deepcopy(operation["value"]))
    else:
        parent[int(key)] = copy.deepcopy(operation["value"])


def changed_paths(before: Any, after: Any, path: str = "") -> set[str]:
    """Pointers of all that differs."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return {
            found
            for key in before.keys() | after.keys()
            for found in (
                changed_paths(before[key], after[key], pointer(path, key))
                if key in before and key in after
                else {pointer(path, key)}
            )
        }
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        pairs = enumerate(zip(before, after, strict=True))
        return {found for index, (old, new) in pairs for found in changed_paths(old, new, pointer(path, index))}
    return set() if before == after else {path}
