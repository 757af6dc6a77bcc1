import os
import stat
from io import StringIO
from pathlib import Path

import pytest

from slopewise.errors import MissingToolError, SlopewiseError, UsageError
from testbed.builds import (
    Build,
    alertmanager_build,
    all_builds,
    bring,
    flux_builds,
    helm_build,
    kwok_build,
    thanos_build,
)
from testbed.progress import Progress

COMPILER = """#!/bin/sh
# Stands for go: writes the package's name where -o says, and a line for every call.
echo "$@" >> "$CALLS"
while [ $# -gt 1 ]; do [ "$1" = -o ] && output=$2; shift; done
[ "$1" = broken ] && { echo "broken.go:1: syntax error" >&2; exit 1; }
echo "$1" > "$output"; chmod +x "$output"
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of a compiler that is the only `go` on the PATH."""
    compiler = tmp_path / "bin" / "go"
    compiler.parent.mkdir()
    compiler.write_text(COMPILER)
    compiler.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{compiler.parent}:{os.defpath}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


@pytest.fixture
def build(tmp_path: Path) -> Build:
    module = tmp_path / "module"
    module.mkdir()
    (module / "go.mod").write_text("module example\n\ngo 1.24.0\n")
    return Build("example", module, {"one": "example/one", "two": "example/two"}, 1)


def test_what_is_built_once_is_found_again(build: Build, calls: Path, tmp_path: Path) -> None:
    first = bring(build, tmp_path / "cache", Progress(StringIO()))
    second = bring(build, tmp_path / "cache", Progress(StringIO()))

    assert first == second
    assert (first / "one").read_text() == "example/one\n"
    assert len(calls.read_text().splitlines()) == 2


def test_a_changed_module_is_built_again(build: Build, calls: Path, tmp_path: Path) -> None:
    first = bring(build, tmp_path / "cache", Progress(StringIO()))
    (build.module / "go.sum").write_text("other\n")

    assert bring(build, tmp_path / "cache", Progress(StringIO())) != first


def test_a_failed_build_shows_the_compilers_words_and_leaves_nothing(calls: Path, build: Build, tmp_path: Path) -> None:
    broken = Build("broken", build.module, {"good": "example/good", "bad": "broken"}, 1)

    with pytest.raises(SlopewiseError, match=r"broken does not build.*\n.*broken\.go:1: syntax error"):
        bring(broken, tmp_path / "cache", Progress(StringIO()))

    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_what_a_killed_build_left_is_removed(build: Build, calls: Path, tmp_path: Path) -> None:
    (tmp_path / "cache" / ".building-dead").mkdir(parents=True)

    bring(build, tmp_path / "cache", Progress(StringIO()))

    assert not (tmp_path / "cache" / ".building-dead").exists()


def test_without_go_the_version_to_install_is_named(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingToolError, match=r"install Go 1\.24\.0 or later"):
        bring(build, tmp_path / "cache", Progress(StringIO()))


def test_a_release_without_a_module_names_those_that_are_there() -> None:
    with pytest.raises(
        UsageError, match=r"only for 1\.35\.4, 1\.36\.3; write one with `python -m testbed module 1\.2\.3`"
    ):
        all_builds("1.2.3")


@pytest.mark.parametrize("version", ["1.35.4", "1.36.3"])
def test_every_program_is_a_tool_of_its_committed_module(version: str) -> None:
    on_demand = (kwok_build(), thanos_build(), helm_build(), alertmanager_build(), *flux_builds())
    for build in (*all_builds(version), *on_demand):
        module = (build.module / "go.mod").read_text()
        assert all(package in module for package in build.programs.values()), build.name
