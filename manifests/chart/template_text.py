"""Writes an object with conditions and values in it as the text of a Helm template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

Node = Any
"""An object as YAML has it, with the classes below among its keys, items and values."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A value that Helm computes, on the line of its key: `{{ .Values.replicas }}`."""

    text: str


@dataclass(frozen=True, slots=True)
class Structure:
    """A mapping or list that Helm takes whole from the values."""

    value: str


@dataclass(frozen=True, slots=True)
class When:
    """As a key of a mapping: its value is a mapping whose entries are there under a condition."""

    condition: str


@dataclass(frozen=True, slots=True)
class Items:
    """As an item of a list: items that are there under a condition, or a list of the values."""

    condition: str
    items: tuple[Node, ...] | Structure


class _Dumper(yaml.SafeDumper):
    """Text of several lines as such, so that a dashboard in a template reads like one."""


def _text(dumper: _Dumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def template(node: Mapping[Any, Node], condition: str = "") -> str:
    """The text of a template that gives this object, or nothing where the condition does not hold."""
    lines = [*_if(condition, list(_mapping(node, 0)))] if condition else list(_mapping(node, 0))
    return "\n".join(lines) + "\n"


def _mapping(node: Mapping[Any, Node], indent: int) -> Iterator[str]:
    for key, value in node.items():
        if isinstance(key, When):
            inner = _structure(value, indent) if isinstance(value, Structure) else list(_mapping(value, indent))
            yield from _if(key.condition, inner)
        else:
            yield from _entry(key, value, indent)


def _entry(key: str, value: Node, indent: int) -> Iterator[str]:
    head = " " * indent + _escaped(yaml.safe_dump(key).partition("\n")[0]) + ":"
    if isinstance(value, Expression):
        yield f"{head} {{{{ {value.text} }}}}"
    elif isinstance(value, Structure):
        yield from [head, *_structure(value, indent + 2)]
    elif isinstance(value, Mapping) and value:
        yield from [head, *_mapping(value, indent + 2)]
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        yield from [head, *_list(value, indent + 2)]
    else:
        yield from _plain({key: value}, indent)


def _list(node: Sequence[Node], indent: int) -> Iterator[str]:
    for item in node:
        if isinstance(item, Items):
            inner = (
                _structure(item.items, indent) if isinstance(item.items, Structure) else list(_list(item.items, indent))
            )
            yield from _if(item.condition, inner)
        elif isinstance(item, Expression):
            yield " " * indent + f"- {{{{ {item.text} }}}}"
        elif isinstance(item, Mapping) and item:
            first, *others = _mapping(item, indent + 2)
            yield from [" " * indent + "- " + first.lstrip(), *others]
        else:
            yield from _plain([item], indent)


def _structure(node: Structure, indent: int) -> list[str]:
    return [" " * indent + f"{{{{- toYaml {node.value} | nindent {indent} }}}}"]


def _if(condition: str, inner: list[str]) -> list[str]:
    return [f"{{{{- if {condition} }}}}", *inner, "{{- end }}"]


def _plain(node: Node, indent: int) -> Iterator[str]:
    text = yaml.dump(node, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    for line in text.rstrip("\n").split("\n"):
        yield " " * indent + _escaped(line) if line else ""


def _escaped(text: str) -> str:
    """Alerts and dashboards have templates of their own, which Helm passes on."""
    return text.replace("{{", '{{ "{{" }}')
