"""Calls a function right after a module was imported, for the modules that are named."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, Callable

Hook = Callable[[ModuleType], None]
"""Gets a module that was just executed. It must not raise: an import would fail."""


def after_import(hooks: Mapping[str, Hook]) -> None:
    """Call each hook with its module: now where it is imported already, else when it is."""
    sys.meta_path.insert(0, _HookingFinder(hooks))
    for name, hook in hooks.items():
        module = sys.modules.get(name)
        if module is not None:
            hook(module)


class _HookingFinder(MetaPathFinder):
    """Finds nothing itself: asks the other finders, and adds the hook to the loader that they found."""

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = dict(hooks)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a module that has a hook; None for all others, which the other finders then find as ever."""
        if name not in self._hooks:
            return None
        for finder in sys.meta_path:
            look = None if finder is self else getattr(finder, "find_spec", None)
            spec = None if look is None else look(name, path, target)
            if spec is not None:
                _add(spec.loader, self._hooks[name])
                return spec  # type: ignore[no-any-return]
        return None


def _add(loader: Any, hook: Hook) -> None:
    """Make a loader call the hook, once. The loader stays what it is: programs read its type and its attributes."""
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def execute_and_call(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        hook(module)

    try:
        loader.exec_module = execute_and_call
    except AttributeError:  # a loader written in C: its modules keep to their output
        return
