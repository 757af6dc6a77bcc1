"""Hooks that are called after the import of a module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

import pytest

from slopewise_exporter.instrument.frameworks import after_import


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package with a module in it, and finders as they were at the end."""
    folder = tmp_path / "some_framework"
    folder.mkdir()
    (folder / "__init__.py").write_text("VALUE = 1\n")
    (folder / "trainer.py").write_text("import some_framework\nVALUE = 2\n")
    (folder / "broken.py").write_text("raise ValueError('of its own')\n")
    monkeypatch.syspath_prepend(tmp_path)
    finders = list(sys.meta_path)
    yield "some_framework"
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.startswith("some_framework")]:
        del sys.modules[name]


def test_a_hook_gets_its_module_once_it_is_executed_and_once_only(package: str) -> None:
    seen: list[tuple[str, int]] = []

    def hook(module: ModuleType) -> None:
        seen.append((module.__name__, module.VALUE))

    after_import({package: hook, f"{package}.trainer": hook, "there_is_no_such_module": hook})
    importlib.import_module(f"{package}.trainer")
    importlib.import_module(f"{package}.trainer")
    assert seen == [(package, 1), (f"{package}.trainer", 2)]


def test_a_module_that_is_imported_already_is_hooked_at_once(package: str) -> None:
    module = importlib.import_module(package)
    seen: list[ModuleType] = []
    after_import({package: seen.append})
    assert seen == [module]


def test_the_loader_stays_what_it_is(package: str) -> None:
    after_import({package: lambda module: None})
    module = importlib.import_module(package)
    assert type(module.__loader__) is SourceFileLoader
    assert module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__
    assert "exec_module" not in vars(module.__loader__)


def test_the_error_of_a_module_is_its_own_and_no_hook_is_called(package: str) -> None:
    seen: list[ModuleType] = []
    after_import({f"{package}.broken": seen.append})
    with pytest.raises(ValueError, match="of its own"):
        importlib.import_module(f"{package}.broken")
    assert seen == []


def test_a_module_that_there_is_not_is_missing_as_ever(package: str) -> None:
    after_import({"there_is_no_such_module": lambda module: None})
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("there_is_no_such_module")


def test_a_module_is_hooked_again_when_it_is_loaded_again(package: str) -> None:
    seen: list[int] = []
    after_import({package: lambda module: seen.append(module.VALUE)})
    importlib.reload(importlib.import_module(package))
    assert seen == [1, 1]
