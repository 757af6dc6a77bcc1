"""Loaded by Python when it starts, where `slopewise-exporter run` has put this folder on the path.

The training's Python may be another one, without this package: it is then taken from where the command has it, and
nothing else is. A `sitecustomize` of the machine's own is loaded afterwards, as it would have been.
"""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress
from importlib.machinery import PathFinder

_HERE = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 10 ms to import


class _LentPackages:
    """Finds this package and its dependencies, last of all: those of the training's own Python come first."""

    names = ("slopewise_exporter", "prometheus_client", "threadpoolctl")

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name not in self.names:
            return None
        folders = os.environ.get("SLOPEWISE_EXPORTER_PACKAGES", "").split(os.pathsep)
        return PathFinder.find_spec(name, [folder for folder in folders if folder])


def _start() -> None:
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]  # noqa: PTH100
    sys.meta_path.append(_LentPackages())
    # An older version of its own, or a Python before 3.9: `launch` has found that out, and a parent follows the output.
    with suppress(Exception):
        from slopewise_exporter.instrument.startup import start

        start()


def _load_the_other() -> None:
    # What stands in sys.modules after this module was executed is what the import returns.
    ours = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ImportError as error:
        sys.modules[__name__] = ours
        if error.name != __name__:
            raise


_start()
_load_the_other()
