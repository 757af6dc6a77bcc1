"""The parameters of all policies as one schema, and which of them each policy takes, in CEL.

A structural schema knows no "one of": so `spec.policy.parameters` has every key that any policy has, without defaults
(two policies may differ in them), `kubectl explain` lists them all, a mistyped key is refused as unknown, and rules
say which keys and which bounds are whose.

The component `policies` installs a definition that admits policies of the user's as well: of those the API server knows
neither names nor keys, so it lets them through, and the controller says what is wrong with them. Shipped policies keep
their bounds, now all of them in rules; only a mistyped key is no longer refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from slopewise import policies
from slopewise.crds.schema.from_models import Rule, Schema, Translation
from slopewise.policies import PolicyFile

_CONSTRAINTS = ("enum", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def runnable_policies() -> list[PolicyFile]:
    """The policies that can decide about real jobs, by name."""
    found = [policies.find(name.replace("_", "-")) for name in policies.names()]
    return [policy for policy in found if not policy.simulator_only]


def parameters_schema(of: Iterable[PolicyFile], *, others: bool = False) -> Schema:
    """One object with the parameters of all these policies. Keys with one type and one bound everywhere keep it.

    With `others`, it takes any other key as well, and bounds are left to the rules.
    """
    schema: Schema = {
        "type": "object",
        "description": "the policy's own parameters; each has a default (`slopewise policies NAME` lists them)",
        "properties": {key: _common(key, users, others=others) for key, users in sorted(_users(of).items())},
        # Server-side apply makes null of an object whose last key it removes; with a default it is {} again.
        "default": {},
    }
    return {**schema, "x-kubernetes-preserve-unknown-fields": True} if others else schema


def parameters_rules(of: Iterable[PolicyFile], *, others: bool = False) -> tuple[Rule, ...]:
    """Who takes which key, and within which bounds where policies differ in them; with `others`, all bounds."""
    policies_known = list(of)
    names = [policy.name for policy in policies_known] if others else []
    rules = []
    for key, users in sorted(_users(policies_known).items()):
        rules.append(_belongs_to(key, list(users), names))
        if others or not _agreed(users):
            rules += [_within(key, name, schema) for name, schema in users.items() if _constraints(schema)]
    return tuple(rules)


Users = Mapping[str, Schema]
"""The schema of one key, by the names of the policies that have it."""


def _users(of: Iterable[PolicyFile]) -> dict[str, dict[str, Schema]]:
    """By key: which policies have it, and what each says of it."""
    found: dict[str, dict[str, Schema]] = {}
    for policy in of:
        raw = policy.parameters.model_json_schema(by_alias=True)
        schema = Translation().structural(policy.parameters)
        for key, each in schema["properties"].items():
            unit = raw["properties"][key]["unit"]
            text = f"{each['description']} ({unit}; default {json.dumps(each['default'])})"
            found.setdefault(key, {})[policy.name] = {**each, "description": text}
    return found


def _agreed(users: Users) -> bool:
    return len({json.dumps(_constraints(schema), sort_keys=True) for schema in users.values()}) == 1


def _constraints(schema: Schema) -> dict[str, Any]:
    return {key: schema[key] for key in _CONSTRAINTS if key in schema}


def _common(key: str, users: Users, *, others: bool) -> Schema:
    kinds = {schema["type"] for schema in users.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"parameter {key} is a {' and a '.join(sorted(kinds))}; one key needs one type in all policies"
        )
    texts: dict[str, list[str]] = {}
    for name, schema in users.items():
        texts.setdefault(schema["description"], []).append(name)
    description = "; ".join(f"{', '.join(names)}: {text}" for text, names in texts.items())
    same = _constraints(next(iter(users.values()))) if _agreed(users) and not others else {}
    return {"type": kinds.pop(), "description": description, **same}


def _belongs_to(key: str, names: list[str], shipped: list[str]) -> Rule:
    """`shipped`: a policy that is none of these may have the key, too; empty: there are no others."""
    theirs = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} it"
    may_others = f" || !(self.name.replace('_', '-') in {shipped})" if shipped else ""
    return Rule(
        f"!has(self.parameters) || !has(self.parameters.{key}) || self.name.replace('_', '-') in {names}{may_others}",
        expression=f"'unknown key for policy ' + self.name + ', only {theirs}; remove it'",
        field_path=f".parameters.{key}",
    )


def _within(key: str, name: str, schema: Schema) -> Rule:
    value = f"self.parameters.{key}"
    tests, bounds = [], []
    if "enum" in schema:
        tests.append(f"{value} in {schema['enum']}")
        bounds.append(f"one of {', '.join(schema['enum'])}")
    if "minimum" in schema:
        strictly = schema.get("exclusiveMinimum", False)
        tests.append(f"double({value}) {'>' if strictly else '>='} {float(schema['minimum'])}")
        bounds.append(f"greater than {'' if strictly else 'or equal to '}{schema['minimum']}")
    if "maximum" in schema:
        strictly = schema.get("exclusiveMaximum", False)
        tests.append(f"double({value}) {'<' if strictly else '<='} {float(schema['maximum'])}")
        bounds.append(f"less than {'' if strictly else 'or equal to '}{schema['maximum']}")
    needed = f"must be {' and '.join(bounds)} for {name}"
    return Rule(
        f"self.name.replace('_', '-') != '{name}' || !has(self.parameters) || !has({value}) || ({' && '.join(tests)})",
        needed,
        field_path=f".parameters.{key}",
    )
