"""Installs the wheels into an empty environment, away from the source tree, and runs what they bring."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from release.commands import call
from release.versions import ROOT
from slopewise.errors import SlopewiseError

SCENARIO = "flowcon-5"
"""The smallest that is shipped."""

_WHERE = "import sys; print(*sys.path, sep='\\n')"
_TRAINING = """
from urllib.request import urlopen
from slopewise_exporter import Reporter
with Reporter(port=0, address="127.0.0.1", linger_seconds=0) as reporter:
    reporter.step(loss=0.25)
    print(urlopen(f"http://127.0.0.1:{reporter.port}/metrics", timeout=10).read().decode())
"""


@dataclass(frozen=True, slots=True)
class Environment:
    """A virtual environment in an otherwise empty folder."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "venv/bin/python"

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs in the empty folder, with no variable of the caller's: no PYTHONPATH, no proxy."""
        return subprocess.run(
            [self.python.with_name(program), *arguments],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@contextmanager
def installed(wheels: Path, version: str) -> Iterator[Environment]:
    """Both wheels with the locked versions of what they need, as in the image; SlopewiseError if they do not fit."""
    with tempfile.TemporaryDirectory(prefix="slopewise-install-") as folder:
        environment = Environment(Path(folder).resolve())
        call(sys.executable, "-m", "venv", "--without-pip", environment.folder / "venv")
        lock = ("--require-hashes", "--only-binary", ":all:", "--requirement", str(ROOT / "requirements.lock"))
        # By name, not by path, which the metadata of what is installed would keep.
        ours = ("--no-index", "--no-deps", "--find-links", str(wheels))
        for arguments in (lock, (*ours, f"slopewise=={version}", f"slopewise-exporter=={version}")):
            _pip(environment, "install", "--quiet", "--no-compile", *arguments)
        _pip(environment, "check")
        yield environment


def check(environment: Environment, version: str) -> None:
    """SlopewiseError for the first thing that does not run as it should."""
    path = environment.run("python", "-c", _WHERE).stdout.splitlines()
    _expect(not any(Path(each).is_relative_to(ROOT) for each in path), "the source tree is on the path", *path)
    stated = environment.run("slopewise", "--version")
    _expect(stated.stdout == f"{version}\n", f"slopewise --version is not {version}", stated.stdout, stated.stderr)
    simulated = environment.run("slopewise", "simulate", SCENARIO, "--seeds", "1", "--workers", "1", "-o", "json")
    _expect(simulated.returncode == 0, f"slopewise simulate {SCENARIO} failed", simulated.stderr)
    _expect("fair" in json.loads(simulated.stdout)["policies"], "simulate has no baseline", simulated.stdout)
    report = environment.run("slopewise", "simulate", SCENARIO, "--seeds", "1", "--report", "report.html")
    refused = report.returncode == 2 and "slopewise[report]" in report.stderr
    _expect(refused, "a report without its extra is not refused", str(report.returncode), report.stderr)
    trained = environment.run("python", "-c", _TRAINING)
    _expect(
        'training_loss{stage="train"} 0.25' in trained.stdout,
        "the exporter serves no loss",
        trained.stdout,
        trained.stderr,
    )


def _pip(environment: Environment, *arguments: str) -> None:
    call(sys.executable, "-m", "pip", "--python", environment.python, *arguments)


def _expect(condition: bool, failure: str, *shown: str) -> None:  # noqa: FBT001 - as in an assert
    if not condition:
        raise SlopewiseError("\n".join([f"{failure}:", *shown]))
