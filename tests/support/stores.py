"""How many entries each store of running objects holds, found by walking over them: a new store is found too."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

_CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def store_sizes(*roots: object) -> Counter[str]:
    """Entries of each container by `Class.attribute`, over all objects of Slopewise that these lead to.

    Those of several objects of one class are added up: 40 jobs with 5 points each are 200.
    """
    sizes: Counter[str] = Counter()
    seen: dict[int, object] = {}
    waiting: list[object] = list(roots)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, str | bytes | int | float | type | None):
            continue
        seen[id(one)] = one
        if type(one).__module__.startswith("slopewise"):
            for name, value in _attributes(one):
                if isinstance(value, _CONTAINERS):
                    sizes[f"{type(one).__name__}.{name}"] += len(value)
                waiting.append(value)
        waiting += _inside(one)
    return sizes


def _attributes(one: object) -> Iterator[tuple[str, Any]]:
    yield from getattr(one, "__dict__", {}).items()
    slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
    for name in dict.fromkeys((*slots, *getattr(one, "__struct_fields__", ()))):
        if hasattr(one, name):
            yield name, getattr(one, name)


def _inside(one: object) -> Iterable[object]:
    """What a container or a function holds."""
    match one:
        case Mapping():
            return [*one.keys(), *one.values()]
        case list() | tuple() | set() | frozenset() | deque():
            return list(one)
        case MethodType():
            return [one.__self__]
        case partial():
            return [one.func, *one.args, *one.keywords.values()]
        case FunctionType():
            return list(one.__closure__ or ())
        case CellType():
            return [one.cell_contents]
        case _:
            return []
