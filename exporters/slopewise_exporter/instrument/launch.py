"""Starts a command so that it is reported: in place of this process where it is a Python that can, else as its child.

A Python with this package loaded at its start needs no parent: signals, exit code, terminal and process metrics are its
own, since no other process stands between. Whether that works is tried out first, in a Python that does nothing else.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

from slopewise_exporter.environment import reports_here
from slopewise_exporter.instrument.claim import TOKEN_VARIABLE, token
from slopewise_exporter.instrument.follower import PATTERN_VARIABLE
from slopewise_exporter.instrument.startup import SWITCH
from slopewise_exporter.threads.at_start import at_start, sets_numbers
from slopewise_exporter.values import Checker

PACKAGES_VARIABLE = "SLOPEWISE_EXPORTER_PACKAGES"
"""Where `bootstrap/sitecustomize.py` finds this package and what it uses, for a Python that has none of them."""

_BOOTSTRAP = Path(__file__).parent / "bootstrap"

_PYTHON = re.compile(r"(python|pypy)[\d.]*(\.exe)?")

_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")

_PROBE = """
import sys
import prometheus_client
from slopewise_exporter.instrument import startup
sys.exit(not startup.active)
"""

_PROBE_SECONDS = 30.0
"""More than a Python takes to start on a busy machine; one that takes longer is followed by a parent."""


def start(arguments: Sequence[str], patterns: Sequence[str], *, wrap: bool) -> NoReturn:
    """Execute the command, reported if that is possible; OSError where there is no such program."""
    environment = {**os.environ, **at_start(os.environ, Checker())}
    reports = reports_here(os.environ, Checker())
    if reports or sets_numbers(environment):
        with suppress(Exception):  # whatever fails here, the command starts
            environment = instrumented(environment, patterns)
            python = interpreter(arguments, environment.get("PATH"))
            is_ours = python is not None and _loads_this_package(python, environment)
            if reports and (wrap or not is_ours):
                # What another Python prints would come with its buffer of 8 KiB: of a short training, at its end.
                unbuffered = {} if python is None or is_ours else {"PYTHONUNBUFFERED": "1"}
                _run_wrapped(arguments, {**unbuffered, **environment}, patterns)
    os.execvpe(arguments[0], list(arguments), environment)  # noqa: S606 - the command as it is, without a shell


def instrumented(environ: Mapping[str, str], patterns: Sequence[str]) -> dict[str, str]:
    """The environment in which every Python, and those that it starts, loads this package."""
    path = environ.get("PYTHONPATH")
    changed = {
        **environ,
        SWITCH: "1",
        "PYTHONPATH": os.pathsep.join([str(_BOOTSTRAP), *([path] if path else [])]),
        PACKAGES_VARIABLE: os.pathsep.join(_packages()),
    }
    changed.pop(TOKEN_VARIABLE, None)  # a training that starts another one with `run` has a right of its own
    token(changed)
    if patterns:
        changed[PATTERN_VARIABLE] = "\n".join(patterns)
    return changed


def _packages() -> list[str]:
    folders = [str(Path(__file__).parents[2]), _folder_of("prometheus_client")]
    with suppress(ImportError):
        folders.append(_folder_of("threadpoolctl"))
    return list(dict.fromkeys(folders))


def _folder_of(module: str) -> str:
    """Where it is found; ModuleNotFoundError. It is not imported, which would take 60 ms of each start."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(name=module)
    return str(Path(spec.origin).parents[1 if spec.submodule_search_locations else 0])


def _run_wrapped(arguments: Sequence[str], environment: Mapping[str, str], patterns: Sequence[str]) -> None:
    from slopewise_exporter.instrument import wrapper

    try:
        wrapper.run(arguments, environment, patterns)
    except wrapper.NotStarted as error:
        if not isinstance(error.__cause__, OSError):  # which executing it will say
            Checker().warn("wrapper", f"the output of {arguments[0]} is not followed ({error})")


def _loads_this_package(python: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether this Python, with these options, loads this package when it starts."""
    try:
        probe = subprocess.run(
            [*python, "-c", _PROBE],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return probe.returncode == 0


def interpreter(arguments: Sequence[str], path: str | None) -> list[str] | None:
    """The Python that the command is, with its options, of which -I keeps this package out; None: it is none."""
    program = shutil.which(arguments[0], path=path)
    if program is None:
        return None
    if _is_python(program):
        return [program, *_options(arguments[1:])]
    words = _first_line(program)
    if words and Path(words[0]).name == "env":
        words = words[2:] if words[1:2] == ["-S"] else words[1:]
    found = shutil.which(words[0], path=path) if words else None
    return [found, *_options(words[1:])] if found and _is_python(found) else None


def _is_python(program: str) -> bool:
    return _PYTHON.fullmatch(Path(program).name) is not None


def _first_line(program: str) -> list[str]:
    """The words after `#!` of a script."""
    try:
        with Path(program).open("rb") as file:
            line = file.readline(1024)
    except OSError:
        return []
    with suppress(ValueError):
        return shlex.split(line[2:].decode("utf-8", "replace")) if line.startswith(b"#!") else []
    return []


def _options(arguments: Sequence[str]) -> list[str]:
    """Those before the script, the module or the code."""
    options: list[str] = []
    rest = list(arguments)
    while rest and rest[0].startswith("-") and rest[0] not in ("-", "-c", "-m", "-i"):
        # -Ic CODE: the last letter of several may be the one that ends the options.
        letters = rest[0]
        if not letters.startswith("--") and letters[-1] in "cm":
            options.append(letters[:-1])
            break
        options.append(rest.pop(0))
        if letters in _OPTIONS_WITH_VALUE and rest:
            options.append(rest.pop(0))
    return options
