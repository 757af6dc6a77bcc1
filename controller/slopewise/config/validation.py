"""Validates YAML documents of users; a mistake becomes one message: where, what, what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic.alias_generators import to_camel

from slopewise.errors import UsageError
from slopewise.text import nearest

Model = TypeVar("Model", bound=BaseModel)

ApiVersion = Literal["slopewise.dev/v1alpha1"]
API_VERSION: ApiVersion = "slopewise.dev/v1alpha1"
GROUP, VERSION = API_VERSION.split("/")


class Document(BaseModel):
    """Base of all that a user writes: camelCase keys, unknown ones refused, nothing changed after it was read."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True)


class OneOf(Document):
    """Exactly one of its keys is given."""

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            kinds = ", ".join(type(self).model_fields)
            raise ValueError(f"give exactly one of {kinds}, not {' and '.join(given) or 'none'}")
        return self


def load_yaml(path: Path) -> object:
    """Read a YAML file; UsageError when it is missing, unreadable or not YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        detail = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise UsageError(f"{path}: cannot be read ({detail}); give the path of a readable YAML file.") from error
    return parse_yaml(text, where=str(path))


def parse_yaml(text: str, *, where: str) -> object:
    """The document in a text that was read from `where`; UsageError when it is not YAML."""
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # such as the date 2026-31-12
        mark = getattr(error, "problem_mark", None)
        line, why = f" line {mark.line + 1}" if mark else "", f" ({error})" if isinstance(error, ValueError) else ""
        raise UsageError(f"{where}:{line} is not valid YAML{why}; correct its syntax.") from error


def validate(model: type[Model], document: object, *, where: str, under: str = "", folder: Path | None = None) -> Model:
    """Validate `document` as `model`; UsageError states the first mistake in one sentence, and how many follow.

    `where` is the file (and the place in it), `under` the key below it whose value `document` is. `folder`: where
    validators find the files that it names (`info.context`).
    """
    try:
        return model.model_validate(document, context=folder)
    except ValidationError as error:
        raise UsageError(validation_message(error, model, where, under)) from error


def validation_message(error: ValidationError, model: type[BaseModel], where: str, under: str = "") -> str:
    """One sentence for a failed validation, e.g. `p.yaml: spec.behaviour.interval: unknown key; remove it …`."""
    # A mistyped key is also a missing one: the key that was written is the better hint.
    first = min(error.errors(include_url=False), key=lambda each: each["type"] != "extra_forbidden")
    location = ".".join(str(part) for part in (under, *first["loc"]) if part != "")
    separator = "." if under else ": "
    place = f"{where}{separator}{location}" if location else where
    others = error.error_count() - 1
    more = f" ({others} more mistake{'s' if others > 1 else ''} after it)" if others else ""
    what = f"{_what_and_remedy(first, model)}{more}"
    return f"{place}: {what}" if what.endswith("?") else f"{place}: {what}."


def _what_and_remedy(first: Any, model: type[BaseModel]) -> str:
    if first["type"] == "extra_forbidden":
        return _unknown_key(str(first["loc"][-1]), _keys_beside(model, first["loc"]))
    if first["type"] == "value_error":
        return str(first["ctx"]["error"])
    if first["type"] == "missing":
        return "is required; add it"
    if first["type"] in ("model_type", "dict_type"):
        return f"must be a mapping of keys to values, not {type(first['input']).__name__}; see the README's example"
    message = str(first["msg"]).replace("Input should be", "must be").replace("a valid tuple", "a list")
    if model.model_config.get("hide_input_in_errors"):  # what was written may be a secret
        return f"{message}; write it in quotes" if first["type"] == "string_type" else message
    return f"{message}, not {first['input']!r}{_suggestion(first)}"


GONE = {
    "maxHoldSeconds": "no arrival is held back any more; remove it",
    "sizeArrivals": "arriving jobs start with the CPU that they request; remove it",
    "maxGuaranteedCpuRatio": "arriving jobs start with the CPU that they request; remove it",
    "hysteresisRatio": "write `minChangeRatio` under `behaviour` to leave small changes out",
    "profilingSeconds": "a job has an even share until its steps are timed; remove it",
}
"""Keys that there were, and what to write instead."""


def _unknown_key(key: str, known: Sequence[str]) -> str:
    if key in GONE:
        return GONE[key]
    meant = nearest(key, known)
    return (
        f"unknown key; did you mean {meant!r}?" if meant else f"unknown key; remove it or use one of {', '.join(known)}"
    )


def _suggestion(first: Any) -> str:
    """Which of a few words was probably meant; empty where none is near, or any text may stand."""
    if first["type"] != "literal_error" or not isinstance(first["input"], str):
        return ""
    words = re.findall(r"'([^']*)'", first["ctx"]["expected"])
    meant = nearest(first["input"], words) if len(words) > 1 else None
    return f"; did you mean {meant!r}?" if meant else ""


def _keys_beside(model: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys that are known where an unknown one was found; lists and mappings of models are seen through."""
    here: type[BaseModel] = model
    parts = iter(location[:-1])
    for part in parts:
        field = next((f for f in here.model_fields.values() if f.alias == part), None)
        inner = _model_in(field.annotation) if field else None
        if field is None or inner is None:
            break
        here = inner
        if any(get_origin(each) in (list, dict) for each in (field.annotation, *get_args(field.annotation))):
            next(parts, None)  # the place in the list, or the key in the mapping
    return sorted(field.alias or name for name, field in here.model_fields.items())


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation such as `list[Model] | None` is about."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for each in get_args(annotation) if (model := _model_in(each))), None)
