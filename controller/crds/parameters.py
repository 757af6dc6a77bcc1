"""The parameters of all policies as one schema, and which of them each policy takes, in CEL.

A structural schema knows no "one of": so `spec.policy.parameters` has every key that any policy has, without defaults
(two policies may differ in them), `kubectl explain` tells them all, a mistyped key is refused as unknown, and rules
say which keys and which bounds are whose.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from controller import policies
from controller.crds.schema import Rule, Schema, Translation
from controller.policies import PolicyFile

_CONSTRAINTS = ("enum", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum")


def runnable_policies() -> list[PolicyFile]:
    """The policies that can decide about real jobs, by name."""
    found = [policies.find(name.replace("_", "-")) for name in policies.names()]
    return [policy for policy in found if not policy.simulator_only]


def parameters_schema(of: Iterable[PolicyFile]) -> Schema:
    """One object with the parameters of all these policies. Keys with one type and one bound everywhere keep it."""
    return {
        "type": "object",
        "description": "the policy's own parameters; each has a default (`slopewise policies NAME` lists them)",
        "properties": {key: _common(key, users) for key, users in sorted(_users(of).items())},
        # Server-side apply makes null of an object whose last key it removes; with a default it is {} again.
        "default": {},
    }


def parameters_rules(of: Iterable[PolicyFile]) -> tuple[Rule, ...]:
    """Who takes which key, and within which bounds where policies differ in them."""
    rules = []
    for key, users in sorted(_users(of).items()):
        rules.append(_belongs_to(key, list(users)))
        if not _agreed(users):
            rules += [_within(key, name, schema) for name, schema in users.items()]
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


def _common(key: str, users: Users) -> Schema:
    kinds = {schema["type"] for schema in users.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"parameter {key} is a {' and a '.join(sorted(kinds))}; one key needs one type in all policies"
        )
    texts: dict[str, list[str]] = {}
    for name, schema in users.items():
        texts.setdefault(schema["description"], []).append(name)
    told = "; ".join(f"{', '.join(names)}: {text}" for text, names in texts.items())
    same = _constraints(next(iter(users.values()))) if _agreed(users) else {}
    return {"type": kinds.pop(), "description": told, **same}


def _belongs_to(key: str, names: list[str]) -> Rule:
    theirs = f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} it"
    return Rule(
        f"!has(self.parameters) || !has(self.parameters.{key}) || self.name.replace('_', '-') in {names}",
        f"unknown key for this policy, only {theirs}; remove it",
        f"'unknown key for policy ' + self.name + ', only {theirs}; remove it'",
        f".parameters.{key}",
    )


def _within(key: str, name: str, schema: Schema) -> Rule:
    if "enum" in schema:
        raise ValueError(f"parameter {key} has other values in other policies; give it the same ones, or another name")
    value = f"self.parameters.{key}"
    tests, words = [], []
    if "minimum" in schema:
        strictly = schema.get("exclusiveMinimum", False)
        tests.append(f"double({value}) {'>' if strictly else '>='} {float(schema['minimum'])}")
        words.append(f"greater than {'' if strictly else 'or equal to '}{schema['minimum']}")
    if "maximum" in schema:
        strictly = schema.get("exclusiveMaximum", False)
        tests.append(f"double({value}) {'<' if strictly else '<='} {float(schema['maximum'])}")
        words.append(f"less than {'' if strictly else 'or equal to '}{schema['maximum']}")
    needed = f"must be {' and '.join(words)} for {name}"
    return Rule(
        f"self.name.replace('_', '-') != '{name}' || !has(self.parameters) || !has({value}) || ({' && '.join(tests)})",
        needed,
        field_path=f".parameters.{key}",
    )
