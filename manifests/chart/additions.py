"""Merges what a kustomize component adds to an object into that object, under a condition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from manifests.chart.template_text import Items, Node, When

Path = tuple[str | int, ...]


class NotExpressibleError(Exception):
    """A component changes what it should only add to; the message names the place."""


def add(tree: Node, base: Node, other: Node, condition: str, given_by_values: frozenset[Path], at: Path = ()) -> None:
    """Put into `tree` what `other` has beyond `base`; the tree is the base with the additions so far.

    NotExpressibleError where anything else differs, other than at the paths that have a value of their own.
    """
    if at in given_by_values or base == other:
        return
    if isinstance(base, Mapping) and isinstance(other, Mapping):
        _add_entries(tree, base, other, condition, given_by_values, at)
    elif isinstance(base, list) and isinstance(other, list) and len(other) >= len(base):
        for index, (before, after) in enumerate(zip(base, other, strict=False)):
            add(tree[index], before, after, condition, given_by_values, (*at, index))
        if other[len(base) :]:
            tree.append(Items(condition, tuple(other[len(base) :])))
    else:
        raise NotExpressibleError(f"{'.'.join(map(str, at))}: {base!r} becomes {other!r} where {condition}")


def _add_entries(
    tree: dict[Any, Node], base: Mapping[str, Node], other: Mapping[str, Node], condition: str,
    given_by_values: frozenset[Path], at: Path,
) -> None:  # fmt: skip
    if missing := sorted(base.keys() - other.keys()):
        raise NotExpressibleError(f"{'.'.join(map(str, at))}: {missing} are left out where {condition}")
    for key in base:
        add(tree[key], base[key], other[key], condition, given_by_values, (*at, key))
    if further := {key: value for key, value in other.items() if key not in base}:
        tree[When(condition)] = further
