"""From a pydantic model to the structural schema that a CustomResourceDefinition needs.

pydantic's `model_json_schema` writes it; one pass makes it what the API server takes: OpenAPI v3 without references and
unions, without `additionalProperties: false` (it prunes what it does not know, and refuses it where the client asks for
strict validation, which kubectl and server-side apply do), and with defaults that satisfy the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import NullableSchema

Schema = dict[str, Any]

_KEPT = (
    "description", "type", "format", "enum", "pattern", "minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum",
    "minLength", "maxLength", "minItems", "maxItems", "maxProperties", "required", "default",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule in CEL, with a message, or with CEL for one that has values in it."""

    rule: str
    message: str = ""
    expression: str = ""
    field_path: str = ""

    def as_schema(self) -> Schema:
        """The entry of `x-kubernetes-validations`."""
        keys = ("rule", "message", "messageExpression", "fieldPath")
        values = (self.rule, self.message, self.expression, self.field_path)
        return {key: value for key, value in zip(keys, values, strict=True) if value}


@dataclass(frozen=True, slots=True)
class Format:
    """What a `format` of ours means to the API server, which does not know it."""

    schema: Mapping[str, Any]
    """None: without that key."""
    rules: tuple[Rule, ...]
    default: Callable[[Any], Any] = lambda value: value
    """The default as a user would write it: a model has read its own already (250 for `250m`)."""


class _WithoutNull(GenerateJsonSchema):
    """A field that may be None may be left out; the API server wants no union for that."""

    def nullable_schema(self, schema: NullableSchema) -> Schema:
        return self.generate_inner(schema["schema"])


@dataclass(frozen=True, slots=True)
class Translation:
    """What is added on the way: rules by model, meanings of our formats, schemas of single fields."""

    rules: Mapping[type[BaseModel], tuple[Rule, ...]] = field(default_factory=dict)
    formats: Mapping[str, Format] = field(default_factory=dict)
    fields: Mapping[tuple[type[BaseModel], str], Schema] = field(default_factory=dict)
    """By model and key: what stands in a field whose type says too little."""

    def structural(self, model: type[BaseModel]) -> Schema:
        """The structural schema of `model`, with all models in it written out in place."""
        raw = model.model_json_schema(schema_generator=_WithoutNull)
        return self._model(model.__name__, raw, raw.get("$defs", {}))

    def _model(self, name: str, raw: Schema, models: Mapping[str, Schema]) -> Schema:
        schema: Schema = {"type": "object", **{key: raw[key] for key in ("description", "required") if key in raw}}
        if "description" in schema:
            schema["description"] = " ".join(schema["description"].split())
        given = {key: schema for (model, key), schema in self.fields.items() if model.__name__ == name}
        schema["properties"] = {
            key: given.get(key) or self._node(each, models) for key, each in raw.get("properties", {}).items()
        }
        rules = next((rules for model, rules in self.rules.items() if model.__name__ == name), ())
        return _with_rules(schema, rules)

    def _node(self, raw: Schema, models: Mapping[str, Schema]) -> Schema:
        if "anyOf" in raw or "oneOf" in raw:
            raise ValueError(f"a union has no structural schema: {raw}")
        if "$ref" in raw:
            return self._reference(raw, models)
        schema = {key: _number(raw[key]) for key in _KEPT if key in raw}
        schema |= {key: value for key, value in raw.items() if key.startswith("x-kubernetes-")}
        for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
            if exclusive in schema:  # a number in JSON Schema; in OpenAPI a bound with a mark beside it
                schema |= {bound: schema[exclusive], exclusive: True}
        if schema.get("default") in (None, [], ""):
            schema.pop("default", None)
        if "const" in raw:
            schema["enum"] = [raw["const"]]
        if "items" in raw:
            schema["items"] = self._node(raw["items"], models)
        if isinstance(raw.get("additionalProperties"), dict):
            schema["additionalProperties"] = self._node(raw["additionalProperties"], models)
            # A map whose last key server-side apply removes becomes null, and that is no object.
            schema.setdefault("default", {})
        elif raw.get("type") == "object":
            schema["x-kubernetes-preserve-unknown-fields"] = True
        return self._with_format(schema)

    def _reference(self, raw: Schema, models: Mapping[str, Schema]) -> Schema:
        name = raw["$ref"].rsplit("/", 1)[1]
        target = models[name]
        schema = self._model(name, target, models) if "properties" in target else self._node(target, models)
        if "description" in raw:
            schema["description"] = raw["description"]
        # Those of its fields: `{}` would do for filling in, but rules are tried on a default as it is.
        defaults = {key: each["default"] for key, each in schema.get("properties", {}).items() if "default" in each}
        return {**schema, "default": defaults} if raw.get("default") is not None and defaults else schema

    def _with_format(self, schema: Schema) -> Schema:
        meaning = self.formats.get(schema.get("format", ""))
        if meaning is None:
            return schema
        if "default" in schema:
            schema["default"] = meaning.default(schema["default"])
        schema |= {"format": None, **meaning.schema}
        return _with_rules({key: value for key, value in schema.items() if value is not None}, meaning.rules)


def _number(value: Any) -> Any:
    """60.0 is written as 60."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _with_rules(schema: Schema, rules: tuple[Rule, ...]) -> Schema:
    return {**schema, "x-kubernetes-validations": [rule.as_schema() for rule in rules]} if rules else schema
