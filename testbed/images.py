"""Container images without a registry: written as archives here, kept in the cache, imported into each containerd.

`cluster.py` imports the pause image and the debootstrap image into both nodes; `load` imports any archive. Pods name
them with `imagePullPolicy: Never`.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slopewise.errors import SlopewiseError, UsageError
from testbed.progress import Progress
from testbed.settings import NODES, Node, Settings

PAUSE_IMAGE = "testbed.slopewise.dev/pause:1"
BASE_IMAGE = "testbed.slopewise.dev/base:1"
SUITE = "bookworm"
PACKAGES = (
    "ca-certificates",
    "python3",
    "python3-numpy",
    "python3-pip",
    "python3-prometheus-client",
    "python3-venv",
)
"""What trainings in tests import, and what the project's own Dockerfile expects of its base image."""

_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LEFT_OUT = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man", "dev")


def bring_images(cache: Path, pause_program: Path, progress: Progress) -> tuple[Path, Path]:
    """The archives of the pause image and of the base image, made now when the cache has none."""
    pause = cache / f"image-{pause_program.parent.name}.tar"
    if not pause.exists():
        with tempfile.TemporaryDirectory(dir=cache) as draft:
            root = Path(draft) / "root"
            root.mkdir()
            shutil.copy2(pause_program, root / "pause")
            write_archive(pause, root, PAUSE_IMAGE, ["/pause"])
    digest = hashlib.sha256(repr((SUITE, PACKAGES, _LEFT_OUT)).encode()).hexdigest()[:12]
    base = cache / f"image-base-{SUITE}-{digest}.tar"
    if not base.exists():
        with progress.step("making the base image with debootstrap (once; about 60 s)"):
            _make_base(base)
    return pause, base


def load(settings: Settings, ctr: Path, archives: Sequence[Path], nodes: Sequence[Node] = NODES) -> list[str]:
    """Import archives (`docker save`, `buildah push docker-archive:`, OCI) into the nodes; the images' names.

    UsageError when there is no such file or it is no image, SlopewiseError when a node's containerd does not answer.
    """
    names: list[str] = []
    for archive in archives:
        if not archive.is_file():
            raise UsageError(f"{archive}: no such file; give the archive of an image (docker save, buildah push).")
        for node in nodes:
            names += _import(settings.containerd_socket(node), ctr, archive)
    return list(dict.fromkeys(names))


def _import(socket: Path, ctr: Path, archive: Path) -> list[str]:
    command = [str(ctr), "--address", str(socket), "--namespace", "k8s.io", "images", "import", str(archive)]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        raise SlopewiseError(f"{archive}: cannot be imported through {socket}: {done.stderr.strip()}")
    return [line.split()[0] for line in done.stdout.splitlines() if "saved" in line or "unpacking" in line]


def _make_base(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".image-", dir=target.parent) as draft:
        root, log = Path(draft) / "root", Path(draft) / "log"
        command = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root)]
        with log.open("wb") as output:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
        if done.returncode != 0:
            last = log.read_text(errors="replace").splitlines()[-1:]
            raise SlopewiseError(f"The base image cannot be made: debootstrap says {last}.")
        write_archive(target, root, BASE_IMAGE, ["/bin/sh"])


def write_archive(target: Path, root: Path, name: str, command: Sequence[str]) -> None:
    """Write an image of one layer in the format of `docker save`, which containerd, buildah and Docker all read.

    `root` is its file system, without what no container needs (lists of packages, manuals); `name` its tag.
    """
    draft = target.with_suffix(".draft")
    layer = target.with_suffix(".layer")
    try:
        with tarfile.open(layer, "w") as tar:
            tar.add(root, arcname=".", filter=_kept)
        with layer.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        config = {
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "os": "linux",
            "config": {"Env": [_PATH], "Cmd": list(command)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
        manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]
        with tarfile.open(draft, "w") as tar:
            _add_json(tar, "config.json", config)
            _add_json(tar, "manifest.json", manifest)
            tar.add(layer, arcname="layer.tar")
        draft.rename(target)
    finally:
        layer.unlink(missing_ok=True)
        draft.unlink(missing_ok=True)


def _kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """None for what no container needs; the folders themselves stay."""
    path = member.name.removeprefix("./")
    return None if any(path.startswith(f"{folder}{os.sep}") for folder in _LEFT_OUT) else member


def _add_json(tar: tarfile.TarFile, name: str, content: object) -> None:
    data = json.dumps(content).encode()
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))
