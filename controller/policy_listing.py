"""What `slopewise policies` prints: every policy with its parameters, from the policies themselves."""

from __future__ import annotations

from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from controller import policies

_BOUNDS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def describe(name: str | None) -> list[dict[str, Any]]:
    """All policies, or the one of that name; UsageError when there is none."""
    names = [name] if name is not None else [each.replace("_", "-") for each in policies.names()]
    return [_describe(policies.find(each)) for each in names]


def _describe(policy: policies.PolicyFile) -> dict[str, Any]:
    return {
        "name": policy.name,
        "summary": policy.summary,
        "description": policy.description,
        "parameters": [
            _parameter(field.alias or key, field) for key, field in policy.parameters.model_fields.items()
        ],
    }


def _parameter(name: str, field: FieldInfo) -> dict[str, Any]:
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    return {
        "name": name,
        "default": field.default,
        "unit": extra.get("unit", ""),
        "bounds": _bounds(field),
        "source": extra.get("source", ""),
        "description": field.description or "",
    }


def _bounds(field: FieldInfo) -> str:
    found = [
        f"{sign} {getattr(each, attribute):g}"
        for each in field.metadata
        for kind, (sign, attribute) in _BOUNDS.items()
        if isinstance(each, kind)
    ]
    return ", ".join(found)


def listing(described: list[dict[str, Any]], *, whole: bool) -> RenderableType:
    """A table a policy; `whole` adds its description with the readings that were chosen."""
    blocks: list[RenderableType] = []
    for policy in described:
        blocks.append(Text(policy["name"], style="bold"))
        blocks.append(Text(policy["description"] if whole else policy["summary"]))
        blocks.append(_table(policy["parameters"]) if policy["parameters"] else Text("no parameters", style="dim"))
        blocks.append(Text())
    return Group(*blocks[:-1])


def _table(parameters: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("PARAMETER", "DEFAULT", "BOUNDS", "UNIT", "WHAT", "SOURCE"):
        table.add_column(heading)
    for each in parameters:
        cells = (each["name"], each["default"], each["bounds"], each["unit"], each["description"], each["source"])
        table.add_row(*(Text(str(cell)) for cell in cells))
    return table
