"""Flux as processes beside the cluster: its source-controller and its kustomize-controller, built from their modules.

Both watch one namespace, in which a test has its GitRepository and its Kustomizations.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from support.cluster import Kubectl
from support.programs import built, running
from support.rendering import ROOT
from support.waiting import wait_for

from slopewise.adapters.local.prometheus_server import free_loopback_port
from testbed.builds import Build, flux_builds

FIELD_MANAGER = "kustomize-controller"
SOURCE = "platform"

Json = dict[str, Any]


def of_the_page() -> Json:
    """What docs/gitops.md writes into the Kustomization of the policies, beside the usual."""
    page = (ROOT / "docs/gitops.md").read_text(encoding="utf-8").partition("\n## Flux\n")[2]
    spec = yaml.safe_load(re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[0])["spec"]
    return {name: spec[name] for name in ("deletionPolicy", "healthCheckExprs")}


def flux_programs() -> tuple[Path, Path]:
    folders = [built(build) for build in flux_builds()]
    return folders[0] / "source-controller", folders[1] / "kustomize-controller"


def flux_definitions() -> list[Json]:
    """The custom resources of both, as their modules have them."""
    return [document for build in flux_builds() for document in _definitions(build)]


def _definitions(build: Build) -> Iterator[Json]:
    (module,) = build.programs.values()
    command = ["go", "list", "-m", "-f", "{{.Dir}}", module]
    folder = Path(subprocess.check_output(command, cwd=build.module, text=True).strip())
    for path in sorted((folder / "config/crd/bases").glob("*.yaml")):
        yield yaml.safe_load(path.read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Flux:
    """What a test has in its hands while both run."""

    kubectl: Kubectl
    namespace: str

    def follow(self, url: str) -> None:
        """Fetch the branch `main` of a repository every few seconds."""
        spec = {"url": url, "interval": "2s", "ref": {"branch": "main"}}
        self._apply("source.toolkit.fluxcd.io/v1", "GitRepository", SOURCE, spec)

    def kustomization(
        self, name: str, path: str, *, depends_on: Sequence[str] = (), timeout_seconds: int = 60, **more: Any
    ) -> None:
        """Apply a folder of the repository, as docs/gitops.md writes it but for the intervals."""
        spec = {
            "path": path,
            "prune": True,
            "wait": True,
            "interval": "10s",
            "retryInterval": "5s",
            "timeout": f"{timeout_seconds}s",
            "dependsOn": [{"name": each} for each in depends_on],
            "sourceRef": {"kind": "GitRepository", "name": SOURCE},
            **more,
        }
        self._apply("kustomize.toolkit.fluxcd.io/v1", "Kustomization", name, spec)

    def delete(self, name: str) -> None:
        """Delete a Kustomization, with what it has applied, and wait until it is gone."""
        self.kubectl.run("delete", "kustomization.kustomize.toolkit.fluxcd.io", name, "-n", self.namespace)

    def status(self, name: str) -> Json:
        found = self.kubectl.get("kustomization.kustomize.toolkit.fluxcd.io", name, "-n", self.namespace)
        return dict(found.get("status", {}))

    def ready(self, name: str) -> Json:
        """Its condition Ready; empty where it has none."""
        return next((dict(each) for each in self.status(name).get("conditions", []) if each["type"] == "Ready"), {})

    def wait_applied(self, name: str, revision: str) -> Json:
        """Wait until this revision is applied and healthy; returns the condition."""
        wait_for(
            f"Flux has applied {revision[:8]} of {name}",
            lambda: self.status(name),
            lambda seen: revision in seen.get("lastAppliedRevision", "") and _is_ready(seen),
        )
        return self.ready(name)

    def wait_refused(self, name: str, revision: str) -> str:
        """Wait until this revision has failed; returns Flux's message."""
        seen = wait_for(
            f"Flux cannot apply {revision[:8]} of {name}",
            lambda: self.status(name),
            lambda seen: revision in seen.get("lastAttemptedRevision", "") and _has_failed(seen),
        )
        assert revision not in seen.get("lastAppliedRevision", "")
        return str(self.ready(name)["message"])

    def events(self, about: str) -> list[tuple[str, str]]:
        """Reason and message of each event about an object of Flux's."""
        found = self.kubectl.get("events", "-n", self.namespace)["items"]
        return [(each["reason"], each["message"]) for each in found if each["involvedObject"]["name"] == about]

    def _apply(self, version: str, kind: str, name: str, spec: Json) -> None:
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        self.kubectl.apply(document, namespace=self.namespace)


def _is_ready(status: Json) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", []))


def _has_failed(status: Json) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "False" for each in status.get("conditions", []))


@contextmanager
def running_flux(kubectl: Kubectl, namespace: str, folder: Path) -> Iterator[Flux]:
    """Both controllers and their custom resources; all of it goes in the end."""
    source, kustomize = flux_programs()
    definitions = flux_definitions()
    with ExitStack() as stack:
        kubectl.apply(*definitions)
        stack.callback(_remove_definitions, kubectl, definitions)
        storage, address = folder / "artifacts", f"127.0.0.1:{free_loopback_port()}"
        storage.mkdir()
        arguments = (f"--storage-path={storage}", f"--storage-addr={address}", f"--storage-adv-addr={address}")
        stack.enter_context(_controller(source, kubectl, namespace, folder, *arguments))
        stack.enter_context(_controller(kustomize, kubectl, namespace, folder, "--requeue-dependency=2s"))
        try:
            yield Flux(kubectl, namespace)
        finally:  # while both still run: what they have applied goes before they do
            kinds = "kustomizations.kustomize.toolkit.fluxcd.io,gitrepositories.source.toolkit.fluxcd.io"
            kubectl.run("delete", kinds, "--all", "-n", namespace, "--timeout=100s")


@contextmanager
def _controller(
    program: Path, kubectl: Kubectl, namespace: str, folder: Path, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    log = folder / f"{program.name}.log"
    health = f"127.0.0.1:{free_loopback_port()}"
    command = [program, f"--health-addr={health}", "--metrics-addr=0", "--watch-all-namespaces=false", *arguments]
    own = {"RUNTIME_NAMESPACE": namespace, "NO_PROXY": "*", "no_proxy": "*", "TMPDIR": str(folder)}
    try:
        with running(
            command, log, lambda: '"Starting workers"' in log.read_text(), KUBECONFIG=str(kubectl.kubeconfig), **own
        ) as process:
            yield process
    finally:
        print(f"{program.name}:", "\n".join(_complaints(log.read_text())))  # shown where a test fails


def _complaints(log: str) -> Iterator[str]:
    for line in log.splitlines():
        if line.startswith("{") and (entry := json.loads(line)).get("level") != "debug":
            yield f"{entry.get('level')} {entry.get('msg')} {entry.get('error', '')}"


def _remove_definitions(kubectl: Kubectl, definitions: list[Json]) -> None:
    names = [document["metadata"]["name"] for document in definitions]
    kubectl.run("delete", "customresourcedefinitions", "--ignore-not-found", *names)
