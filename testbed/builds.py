"""Builds the programs of the cluster from their Go modules, once per machine.

Each upstream has a folder below `modules/`, because their `replace` blocks exclude each other. A build is cached
under the hash of its inputs and renamed into place at the end, so it is never incomplete. With a warm module cache
Go needs no network.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from slopewise.errors import MissingToolError, SlopewiseError, UsageError
from testbed.progress import Progress

MODULES = Path(__file__).parent / "modules"
KUBERNETES = "k8s.io/kubernetes"
KUBERNETES_COMMANDS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)
_CONTAINERD = "github.com/containerd/containerd/v2"
_VERSION_PACKAGE = "k8s.io/component-base/version"
_ERROR_LINES = 8


@dataclass(frozen=True, slots=True)
class Build:
    """Programs from one Go module. `programs`: name of the file → Go package. `about_seconds`: on two cores."""

    name: str
    module: Path
    programs: Mapping[str, str]
    about_seconds: int
    link_flags: str = "-s -w"
    tags: str = ""
    environment: Mapping[str, str] = field(default_factory=lambda: {"CGO_ENABLED": "0"})

    def key(self) -> str:
        """Names what is built: the same for the same module files and flags, on whatever machine."""
        digest = hashlib.sha256(repr((sorted(self.programs.items()), self.link_flags, self.tags)).encode())
        digest.update(repr(sorted(self.environment.items())).encode())
        for path in sorted(self.module.iterdir()):
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
        return f"{self.name}-{digest.hexdigest()[:12]}"


def all_builds(kubernetes_version: str) -> tuple[Build, ...]:
    """What a cluster of this version needs; UsageError when the clone has no module for it."""
    return (
        _kubernetes(kubernetes_version),
        # runc is written in C where it enters a container; seccomp profiles need Debian's libseccomp.
        Build(
            "runc", MODULES / "runc", {"runc": "github.com/opencontainers/runc"}, 15,
            tags="seccomp", environment={"CGO_ENABLED": "1"},
        ),
        Build(
            "containerd", MODULES / "containerd",
            {name: f"{_CONTAINERD}/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")}, 55,
            tags="no_btrfs no_zfs no_devmapper",
        ),
        Build("etcd", MODULES / "etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, 25),
        prometheus_build(),
        Build("pause", MODULES / "pause", {"pause": "slopewise.dev/testbed/pause"}, 2),
    )  # fmt: skip


def prometheus_build() -> Build:
    """Newer than Debian's, and with the discovery through an API server; it has no other."""
    programs = {"prometheus": "github.com/prometheus/prometheus/cmd/prometheus"}
    return Build("prometheus", MODULES / "prometheus", programs, 90, tags="remove_all_sd enable_kubernetes_sd")


def kwok_build() -> Build:
    """The simulator of nodes and pods; built on demand."""
    return Build("kwok", MODULES / "kwok", {"kwok": "sigs.k8s.io/kwok/cmd/kwok"}, 40)


def thanos_build() -> Build:
    """Sidecars and Queriers, for tests of queries through them; built on demand."""
    # Its own build has these tags; without the second its gRPC answers crash it.
    programs = {"thanos": "github.com/thanos-io/thanos/cmd/thanos"}
    return Build("thanos", MODULES / "thanos", programs, 200, tags="netgo slicelabels")


def helm_build() -> Build:
    """Renders and checks the chart; built on demand."""
    return Build("helm", MODULES / "helm", {"helm": "helm.sh/helm/v4/cmd/helm"}, 290)


def flux_builds() -> tuple[Build, Build]:
    """Flux's source-controller and kustomize-controller, for tests of GitOps; built on demand."""
    return (
        Build(
            "flux-source", MODULES / "flux-source", {"source-controller": "github.com/fluxcd/source-controller"}, 530
        ),
        Build(
            "flux-kustomize", MODULES / "flux-kustomize",
            {"kustomize-controller": "github.com/fluxcd/kustomize-controller"}, 350,
        ),
    )  # fmt: skip


def alertmanager_build() -> Build:
    """For tests of alerts that freeze; built on demand. A later version's module lacks its page, and does not build."""
    programs = {"alertmanager": "github.com/prometheus/alertmanager/cmd/alertmanager"}
    return Build("alertmanager", MODULES / "alertmanager", programs, 60)


def bring(build: Build, cache: Path, progress: Progress) -> Path:
    """The folder with the programs of a build, built now when the cache has none.

    MissingToolError without Go, SlopewiseError with the compiler's own words when it does not build.
    """
    target = cache / build.key()
    if _is_complete(build, target):
        return target
    if shutil.which("go") is None:
        raise MissingToolError(
            f"{build.name} must be built once and `go` is not on the PATH; install Go {_go_version(build)} or later."
        )
    with _one_at_a_time(cache):
        if not _is_complete(build, target):  # another run built it while this one waited
            with progress.step(f"building {build.name} (once; about {build.about_seconds} s on two cores)"):
                _build_into(build, target, progress)
    return target


def _kubernetes(version: str) -> Build:
    module = MODULES / "kubernetes" / version
    if not (module / "go.mod").exists():
        there = ", ".join(sorted(path.name for path in module.parent.iterdir()))
        raise UsageError(
            f"KUBERNETES_VERSION: there is no module for {version}, only for {there}; "
            f"write one with `python -m testbed module {version}`."
        )
    major, minor, _ = version.split(".")
    facts = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in facts.items())
    programs = {name: f"{KUBERNETES}/cmd/{name}" for name in KUBERNETES_COMMANDS}
    return Build(f"kubernetes-{version}", module, programs, 300, link_flags=f"-s -w {flags}")


def _is_complete(build: Build, folder: Path) -> bool:
    return all(os.access(folder / program, os.X_OK) for program in build.programs)


def _build_into(build: Build, target: Path, progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix=".building-", dir=target.parent) as draft:
        for program, package in build.programs.items():
            _go_build(build, package, Path(draft) / program, progress)
        done = Path(draft) / "done"
        done.mkdir()
        for program in build.programs:
            (Path(draft) / program).rename(done / program)
        shutil.rmtree(target, ignore_errors=True)  # what is there lacks a program
        done.rename(target)


def _go_build(build: Build, package: str, output: Path, progress: Progress) -> None:
    # Our own pause program lies in the clone; nothing of a build depends on the state of that.
    command = ["go", "build", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags", build.tags]
    command += ["-ldflags", build.link_flags]
    environment = {**os.environ, **build.environment, "GOFLAGS": "", "GOWORK": "off"}
    said = output.with_name("said")
    with said.open("wb") as log, subprocess.Popen(
        [*command, "-o", str(output), package], cwd=build.module, env=environment,
        stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
    ) as process:  # fmt: skip
        try:
            progress.wait(process, output.name)
        except BaseException:
            process.terminate()  # Ctrl-C: no compiler goes on behind our back
            raise
    if process.returncode != 0:
        last = "\n".join(said.read_text(errors="replace").splitlines()[-_ERROR_LINES:])
        raise SlopewiseError(f"{build.name}: {package} does not build (Go's own words follow).\n{last}")


def _go_version(build: Build) -> str:
    lines = (build.module / "go.mod").read_text(encoding="utf-8").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("go "))


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Wait for other runs that build. The kernel frees the lock of a run that is killed."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left_by_a_killed_run in cache.glob(".building-*"):
            shutil.rmtree(left_by_a_killed_run, ignore_errors=True)
        yield
