"""Helm, built from its Go module, and what it makes of our chart."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.programs import built
from support.rendering import MANIFESTS, Documents

from testbed.builds import helm_build

CHART = MANIFESTS / "chart/slopewise"
RELEASE = "slopewise"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def helm_program() -> Path:
    return built(helm_build()) / "helm"


@dataclass(frozen=True)
class Helm:
    """Runs Helm with a home of its own."""

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def attempt(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """What it answers, with its exit status."""
        variables = {name: str(self.home / name) for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")}
        if self.kubeconfig is not None:
            variables["KUBECONFIG"] = str(self.kubeconfig)
        command = [str(each) for each in (self.program, *arguments)]
        return subprocess.run(
            command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=300, check=False
        )

    def run(self, *arguments: str | Path) -> str:
        """What it prints; it must succeed."""
        done = self.attempt(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def template(self, values: dict[str, Any] | None = None, namespace: str = "slopewise-system") -> Documents:
        """The objects of the chart with these values."""
        text = self.run(*self._rendering(values or {}, namespace))
        return [document for document in yaml.load_all(text, _LOADER) if document]

    def refusal(self, values: dict[str, Any]) -> str:
        """The message of a rendering that must fail."""
        done = self.attempt(*self._rendering(values, "slopewise-system"))
        assert done.returncode != 0, done.stdout[:500]
        return done.stderr

    def _rendering(self, values: dict[str, Any], namespace: str) -> list[str | Path]:
        path = self.home / "values.json"
        path.write_text(json.dumps(values), encoding="utf-8")
        return ["template", RELEASE, CHART, "--namespace", namespace, "--values", path, "--kube-version", "1.36.3"]
