"""Checks that the machine can run a cluster, and restores the kernel settings that the cluster's programs change."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from slopewise.errors import MissingToolError, UsageError
from testbed.progress import Progress

# What we need → the Debian package that brings it.
PROGRAMS: Mapping[str, str] = {
    "conntrack": "conntrack",
    "debootstrap": "debootstrap",
    "gcc": "gcc",
    "ip": "iproute2",
    "iptables": "iptables",
    "openssl": "openssl",
    "pkg-config": "pkg-config",
    "socat": "socat",
}
FILES: Mapping[str, str] = {
    "/usr/include/seccomp.h": "libseccomp-dev",
    "/usr/include/stdlib.h": "libc6-dev",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
}

# kubelet, kube-proxy and the network plugins set these for the whole machine, e.g. kernel.panic_on_oops to 1.
SYSCTLS = (
    "net/ipv4/ip_forward",
    "net/ipv6/conf/all/forwarding",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/netfilter/nf_conntrack_max",
)
_PROC_SYS = Path("/proc/sys")

# Paths that are written into the programs, so that they appear outside our folder.
FOREIGN_PATHS = (
    Path("/run/containerd"),
    Path("/run/netns"),
    Path("/run/xtables.lock"),
    Path("/var/lib/cni"),
    Path("/var/lib/kubelet"),
    Path("/var/log/containers"),
)


def require_root(user: int | None = None) -> None:
    """UsageError for any other user (ours, when none is given): addresses, mounts and cgroups are root's."""
    if (os.geteuid() if user is None else user) != 0:
        raise UsageError("The test-bed needs root for its network, mounts and cgroups; run it with sudo, or point "
                         "KUBECONFIG at a cluster that you have.")  # fmt: skip


def missing_packages() -> list[str]:
    """The Debian packages that are not here, sorted."""
    programs = {package for program, package in PROGRAMS.items() if shutil.which(program) is None}
    files = {package for path, package in FILES.items() if not Path(path).exists()}
    return sorted(programs | files)


def require_packages(progress: Progress) -> None:
    """Install what is missing where apt-get is there; MissingToolError with the line to type where it is not."""
    if not (missing := missing_packages()):
        return
    line = f"apt-get install {' '.join(missing)}"
    if shutil.which("apt-get") is None:
        raise MissingToolError(f"The test-bed needs {', '.join(missing)} (Debian's names); install them: {line}")
    with progress.step(f"installing {' '.join(missing)}"):
        _apt_get("update", "-qq")
        _apt_get("install", "-y", "-qq", "--no-install-recommends", *missing)
    if still := missing_packages():
        raise MissingToolError(f"apt-get brought no {', '.join(still)}; install them: {line}")


def save_sysctls() -> dict[str, str]:
    """The settings as they are now, for `restore_sysctls`. Those that this kernel lacks are left out."""
    return {name: path.read_text().strip() for name in SYSCTLS if (path := _PROC_SYS / name).exists()}


def restore_sysctls(saved: Mapping[str, str]) -> None:
    """Write back those that differ."""
    for name, value in saved.items():
        path = _PROC_SYS / name
        if path.exists() and path.read_text().strip() != value:
            path.write_text(value)


def absent_paths() -> list[str]:
    """Of the paths that the programs insist on, those that are not there yet: they go again at the end."""
    return [str(path) for path in FOREIGN_PATHS if not path.exists()]


def remove_paths(paths: list[str]) -> None:
    """Remove what was `absent_paths` before; anything else is refused."""
    for path in map(Path, paths):
        if path not in FOREIGN_PATHS:
            raise ValueError(f"{path} is none of the paths that the cluster's programs make")
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(
        ["apt-get", *arguments], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise MissingToolError(f"apt-get {arguments[0]} failed ({last}); mend that, or install the packages yourself.")
