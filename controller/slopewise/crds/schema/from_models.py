"""From a pydantic model to the structural schema that a CustomResourceDefinition needs.

The API server takes OpenAPI
v3 without references, without `additionalProperties: false` (it prunes what it does not know, and refuses it where the
client asks for strict validation, which kubectl and server-side apply do), and with defaults that satisfy the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

Schema = dict[str, Any]

_KEPT = (
    "description", "type", "format", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems",
    "maxItems", "maxProperties", "required", "default",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in CEL. `message_expression` is CEL for a message with values in it."""

    rule: str
    message: str
    message_expression: str | None = None
    field_path: str | None = None

    def as_schema(self) -> Schema:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.rule, "message": self.message}
        if self.message_expression:
            entry["messageExpression"] = self.message_expression
        if self.field_path:
            entry["fieldPath"] = self.field_path
        return entry


@dataclass(frozen=True, slots=True)
class Format:
    """What a `format` of ours means to the API server, which does not know it."""

    schema: Mapping[str, Any]
    rules: tuple[Rule, ...]
    default: Callable[[Any], Any] = lambda value: value
    """The default as a user would write it: a model has read its own already (250 for `250m`)."""


@dataclass(frozen=True, slots=True)
class Translation:
    """What is added on the way: rules by model, meanings of our formats, schemas of single fields."""

    rules: Mapping[type[BaseModel], tuple[Rule, ...]] = field(default_factory=dict)
    formats: Mapping[str, Format] = field(default_factory=dict)
    fields: Mapping[tuple[type[BaseModel], str], Schema] = field(default_factory=dict)
    """By model and key: what stands in a field whose type says too little."""

    def structural(self, model: type[BaseModel]) -> Schema:
        """The structural schema of `model`, with all models in it written out in place."""
        raw = model.model_json_schema(by_alias=True, mode="validation")
        return _Translator(self, raw.get("$defs", {})).of_model(model.__name__, raw)


class _Translator:
    """One translation; `definitions` are the models that the schema refers to, by name."""

    def __init__(self, how: Translation, definitions: Mapping[str, Schema]) -> None:
        self._formats = how.formats
        self._definitions = definitions
        self._rules = {model.__name__: rules for model, rules in how.rules.items()}
        self._fields = {(model.__name__, key): schema for (model, key), schema in how.fields.items()}

    def of_model(self, name: str, raw: Schema) -> Schema:
        schema: Schema = {"type": "object", **{key: raw[key] for key in ("description", "required") if key in raw}}
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        schema["properties"] = {
            key: self._fields.get((name, key)) or self._node(each) for key, each in raw.get("properties", {}).items()
        }
        _add_rules(schema, self._rules.get(name, ()))
        return schema

    def _node(self, raw: Schema) -> Schema:
        raw = _without_null(raw)
        if "$ref" in raw:
            return self._reference(raw)
        schema = {key: raw[key] for key in _KEPT if key in raw}
        schema |= {key: value for key, value in raw.items() if key.startswith("x-kubernetes-")}
        _bounds(schema, raw)
        _default(schema)
        if "const" in raw:
            schema["enum"] = [raw["const"]]
        if "items" in raw:
            schema["items"] = self._node(raw["items"])
        if isinstance(raw.get("additionalProperties"), dict):
            schema["additionalProperties"] = self._node(raw["additionalProperties"])
            # A map whose last key server-side apply removes becomes null, and that is no object.
            schema.setdefault("default", {})
        elif raw.get("type") == "object":
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return self._with_format(schema)

    def _reference(self, raw: Schema) -> Schema:
        name = raw["$ref"].rsplit("/", 1)[1]
        target = self._definitions[name]
        schema = self.of_model(name, target) if "properties" in target else self._node(target)
        if "description" in raw:
            schema["description"] = raw["description"]
        if raw.get("default") is not None and (defaults := _defaults(schema)):
            schema["default"] = defaults
        return schema

    def _with_format(self, schema: Schema) -> Schema:
        meaning = self._formats.get(schema.get("format", ""))
        if meaning is None:
            return schema
        del schema["format"]
        if "default" in schema:
            schema["default"] = meaning.default(schema["default"])
        for key in ("type", "x-kubernetes-preserve-unknown-fields"):
            if meaning.schema.get(key, "") is None:
                schema.pop(key, None)
        schema |= {key: value for key, value in meaning.schema.items() if value is not None}
        _add_rules(schema, meaning.rules)
        return schema


def _without_null(raw: Schema) -> Schema:
    """A field that may be None may be left out; the API server wants no union for that."""
    for union in ("anyOf", "oneOf"):
        choices = [each for each in raw.get(union, []) if each.get("type") != "null"]
        if len(choices) == 1:
            return {**choices[0], **{key: value for key, value in raw.items() if key != union}}
        if choices:
            raise ValueError(f"a union has no structural schema: {raw}")
    return raw


def _bounds(schema: Schema, raw: Schema) -> None:
    """JSON Schema's exclusive bounds are numbers; OpenAPI's are bounds with a mark beside them."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in raw:
            schema[bound] = raw[exclusive]
            schema[exclusive] = True
        if isinstance(schema.get(bound), float) and schema[bound].is_integer():
            schema[bound] = int(schema[bound])


def _default(schema: Schema) -> None:
    """What is empty by default is left out, and 60.0 is written as 60."""
    default = schema.get("default")
    if default in (None, [], ""):
        schema.pop("default", None)
    elif isinstance(default, float) and default.is_integer():
        schema["default"] = int(default)


def _defaults(schema: Schema) -> Schema:
    """An object's default: those of its fields. `{}` would do for filling in, but rules are tried on it as it is."""
    return {key: each["default"] for key, each in schema.get("properties", {}).items() if "default" in each}


def _add_rules(schema: Schema, rules: tuple[Rule, ...]) -> None:
    if rules:
        schema["x-kubernetes-validations"] = [rule.as_schema() for rule in rules]
