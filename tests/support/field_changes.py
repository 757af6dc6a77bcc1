"""Every change of an object, one field at a time, as JSON patches: fields that it has, and one that no schema has."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
Operation = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
TOMORROW = "fieldOfTomorrow"


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


# --- each change -------------------------------------------------------------------------------------------


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
