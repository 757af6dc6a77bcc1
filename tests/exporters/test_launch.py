"""Which commands are a Python that can report itself, and the environment that they get."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from slopewise_exporter.instrument.launch import instrumented, interpreter

PATH = os.environ["PATH"]


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["train.py", "--epochs", "3", "-c", "x"], []),
        (["-u", "train.py"], ["-u"]),
        (["-c", "print(1)"], []),
        (["-m", "package.train", "-I"], []),
        (["-Ic", "print(1)"], ["-I"]),
        (["-um", "train"], ["-u"]),
        (["-W", "error", "-X", "dev", "train.py", "-E"], ["-W", "error", "-X", "dev"]),
        (["-Werror", "-Xdev", "-E", "train.py"], ["-Werror", "-Xdev", "-E"]),
        (["-"], []),
        ([], []),
        (["-i"], []),
    ],
)
def test_the_options_of_python_are_those_before_its_program(arguments: list[str], options: list[str]) -> None:
    assert interpreter([sys.executable, *arguments], PATH) == [sys.executable, *options]


@pytest.mark.parametrize(
    ("first_line", "expected"),
    [
        (f"#!{sys.executable}", [sys.executable]),
        (f"#! {sys.executable} -I", [sys.executable, "-I"]),
        ("#!/usr/bin/env {python}", ["{found}"]),
        ("#!/usr/bin/env -S {python} -u", ["{found}", "-u"]),
        ("#!/bin/sh", None),
        ("#!", None),
        ("#!/usr/bin/env", None),
        ("#!/nowhere/python3", None),
        ("\x7fELF", None),
        ("#!'", None),
        ("", None),
    ],
)
def test_a_script_is_what_its_first_line_names(tmp_path: Path, first_line: str, expected: list[str] | None) -> None:
    python = Path(sys.executable)
    path = os.pathsep.join([str(python.parent), PATH])
    script = tmp_path / "train"
    script.write_text(first_line.format(python=python.name) + "\nimport this\n")
    script.chmod(0o755)
    found = None if expected is None else [each.format(found=python) for each in expected]
    assert interpreter([str(script), "a", "-I"], path) == found
    assert interpreter(["train"], os.pathsep.join([str(tmp_path), path])) == found


@pytest.mark.parametrize("name", ["no-such-program", "sh", "pythonista"])
def test_what_is_no_python_has_no_interpreter(tmp_path: Path, name: str) -> None:
    (tmp_path / "pythonista").write_bytes(b"\x7fELF")
    (tmp_path / "pythonista").chmod(0o755)
    assert interpreter([name], os.pathsep.join([PATH, str(tmp_path)])) is None


def test_the_path_of_the_user_comes_after_the_folder_that_loads_the_package() -> None:
    added = instrumented({"PYTHONPATH": "/mine:/other", "A": "b"}, ())
    folder, *rest = added["PYTHONPATH"].split(os.pathsep)
    assert Path(folder, "sitecustomize.py").is_file()
    assert rest == ["/mine", "/other"]
    assert added["A"] == "b"
    assert instrumented({}, ())["PYTHONPATH"] == folder


def test_each_run_is_a_training_of_its_own_also_within_another_one() -> None:
    first = instrumented({}, ())
    name = "SLOPEWISE_EXPORTER_CLAIM"
    assert instrumented(first, ())[name] != first[name]


def test_patterns_reach_the_training_one_a_line() -> None:
    assert instrumented({}, ["a (b)", "c (d)"])["SLOPEWISE_EXPORTER_PATTERN"] == "a (b)\nc (d)"
    assert "SLOPEWISE_EXPORTER_PATTERN" not in instrumented({}, ())
