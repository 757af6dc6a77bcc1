"""Prints `slopewise policies`: a line for each policy, or one with its parameters, read from its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slopewise import policies
from slopewise.own_policies import catalogue

if TYPE_CHECKING:
    from slopewise.own_policies.check import CheckResult, Finding

_BOUNDS = {Ge: ("≥", "ge"), Gt: (">", "gt"), Le: ("≤", "le"), Lt: ("<", "lt")}


def describe(name: str | None) -> list[dict[str, Any]]:
    """All policies, or the one of that name or in that file; UsageError when there is none.

    Of those that cannot be used, all that is known is where they are and why.
    """
    if name is not None:
        return [_describe(catalogue.find(catalogue.name_of(name)))]
    shipped = [_describe(policies.find(each.replace("_", "-"))) for each in policies.names()]
    return shipped + [_describe(each) for each in catalogue.own()]


def _describe(policy: policies.PolicyFile | catalogue.Unusable) -> dict[str, Any]:
    if isinstance(policy, catalogue.Unusable):
        return {"name": policy.name, "origin": policy.origin, "mistake": policy.mistake}
    return {
        "name": policy.name,
        "origin": policy.origin,
        "mistake": None,
        "purpose": policy.purpose,
        "summary": policy.summary,
        "description": policy.description,
        "simulator_only": bool(policy.simulator_only),
        "actions": [action for action in get_args(policies.Action) if action in policy.actions],
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


def _grid(columns: int) -> Table:
    """Without a heading; a name that is longer than its column goes on in the next line."""
    table = Table.grid(padding=(0, 2))
    for _ in range(columns):
        table.add_column(overflow="fold")
    return table


def listing(described: list[dict[str, Any]]) -> RenderableType:
    """A line a policy: what it is for, or why it cannot be used."""
    table = _grid(2)
    for policy in described:
        table.add_row(Text(policy["name"] or policy["origin"], style="bold"), _line(policy))
    return table


def _line(policy: dict[str, Any]) -> Text:
    if policy["mistake"] is not None:
        return Text(f"cannot be used: {policy['mistake']}", style="red")
    line = Text(policy["purpose"])
    if policy["simulator_only"]:
        line.append(" (simulated)")
    return line.append(f" (from {policy['origin']})", style="dim") if policy["origin"] else line


def page(policy: dict[str, Any]) -> RenderableType:
    """One policy with its description, the readings that were chosen, and its parameters."""
    where = " (in the simulator only)" if policy["simulator_only"] else ""
    blocks: list[RenderableType] = [Text(policy["name"], style="bold").append(where, style="not bold")]
    if policy["origin"]:
        blocks.append(Text(f"from {policy['origin']}", style="dim"))
    if policy["actions"]:
        blocks.append(Text(f"It may {' and '.join(policy['actions'])} jobs.", style="dim"))
    blocks.append(Text(policy["description"]))
    blocks += [_parameter_block(each) for each in policy["parameters"]] or [Text("No parameters.", style="dim")]
    return Group(*blocks)


def _parameter_block(parameter: dict[str, Any]) -> RenderableType:
    """Three lines, which fit any terminal: name and default, what it is, where it comes from."""
    bounds = f" ({parameter['bounds']})" if parameter["bounds"] else ""
    lines = [
        Text(f"{parameter['name']} = {parameter['default']}{bounds}", style="bold"),
        Text(f"  {parameter['description']}"),
        Text(f"  unit: {parameter['unit']}; source: {parameter['source']}", style="dim"),
    ]
    return Padding(Group(*lines), (0, 0, 0, 2))


def checked(result: CheckResult) -> RenderableType:
    """A line a check; of the one that found a mistake, what it is and in which world."""
    table = _grid(3)
    for finding in result.findings:
        mark = Text("ok", style="green") if finding.mistake is None else Text("no", style="bold red")
        table.add_row(mark, Text(finding.check), Text(finding.mistake or ""))
    worlds = [_world(finding) for finding in result.findings if finding.world is not None]
    kept = "keeps to the contract" if result.kept else "does not keep to the contract"
    return Group(table, *worlds, Text(f"{result.policy} {kept}."))


def _world(finding: Finding) -> RenderableType:
    shown = Text(f"The smallest world in which this happens ({finding.check}):\n", style="dim")
    return shown.append(finding.world or "", style="not dim")
