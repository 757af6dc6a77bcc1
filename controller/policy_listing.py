"""What `slopewise policies` prints: every policy with its parameters, from the policies themselves."""

from __future__ import annotations

from typing import Any

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from controller import policies

_BOUNDS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def describe(name: str | None) -> list[dict[str, Any]]:
    """All policies, or the one of that name; UsageError when there is none."""
    names = [name] if name is not None else policies.names()
    return [_describe(policies.find(each.replace("_", "-"))) for each in names]


def _describe(policy: policies.PolicyFile) -> dict[str, Any]:
    return {
        "name": policy.name,
        "summary": policy.summary,
        "description": policy.description,
        "simulator_only": policy.simulator_only,
        "parameters": [_parameter(field.alias or key, field) for key, field in policy.parameters.model_fields.items()],
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
    """A block a policy; `whole` adds its description with the readings that were chosen."""
    blocks: list[RenderableType] = []
    for policy in described:
        where = " (in the simulator only)" if policy["simulator_only"] else ""
        name = Text(policy["name"], style="bold").append(where, style="not bold")
        blocks += [name, Text(policy["description"] if whole else policy["summary"])]
        blocks += [_parameter_block(each) for each in policy["parameters"]] or [Text("No parameters.", style="dim")]
        blocks.append(Text())
    return Group(*blocks[:-1])


def _parameter_block(parameter: dict[str, Any]) -> RenderableType:
    """Three lines, which fit any terminal: name and default, what it is, where it comes from."""
    bounds = f" ({parameter['bounds']})" if parameter["bounds"] else ""
    lines = [
        Text(f"{parameter['name']} = {parameter['default']}{bounds}", style="bold"),
        Text(f"  {parameter['description']}"),
        Text(f"  unit: {parameter['unit']}; source: {parameter['source']}", style="dim"),
    ]
    return Padding(Group(*lines), (0, 0, 0, 2))
