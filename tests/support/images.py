"""The controller's image and the trainer's: built when their sources have changed, loaded where the nodes lack them.

`tests/image/build_image.sh` does the building. Archives are kept in the user's cache with a digest of the sources they
were made of: 100 s the first time on two cores, half a minute after a change of our own code, a second without one.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support.rendering import ROOT

from slopewise import __version__
from testbed import cluster
from testbed.images import load
from testbed.settings import NODES, Node, Settings

SCRIPT = ROOT / "tests/image/build_image.sh"
_BESIDE_THE_CONTEXT = (
    ".dockerignore",
    "Dockerfile",
    "requirements-dev.lock",
    "tests/cluster/trainer/Dockerfile",
    "tests/image/build_image.sh",
)
_LEFT_OUT = ("__pycache__", ".egg-info")
_DIGEST = "sources.sha256"


@dataclass(frozen=True)
class Images:
    """Names that the nodes know: the controller's, and one whose `slopewise.demo` trains and serves."""

    controller: str
    trainer: str


OURS = Images(f"slopewise:{__version__}", f"slopewise-trainer:{__version__}")


def why_not_here() -> str | None:
    """Why images cannot be built on this machine, and what to do; None: they can."""
    missing = [tool for tool in ("buildah", "debootstrap", "dpkg") if shutil.which(tool) is None]
    if missing:
        return f"building the image needs {', '.join(missing)}: apt-get install buildah debootstrap"
    return None if os.geteuid() == 0 else "building the image without a daemon needs root"


def run(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command; on an interruption end what it started too, since bash leaves its children running."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        output, errors = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def bring_images(settings: Settings) -> Images:
    """Both images on both nodes of the test-bed, made of the sources as they are now."""
    folder = settings.cache_folder.parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    with _alone(folder / ".lock"):
        archives = _built(folder)
        ctr = Path(cluster.running(settings).state.ctr)
        for archive in archives:
            wanted = Path(f"{archive}.id").read_text(encoding="utf-8").strip()
            lacking = [node for node in NODES if _config_digest(settings, ctr, node, archive.stem) != wanted]
            load(settings, ctr, [archive], lacking)
    return OURS


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Two test runs at once would load each other's images under the same names."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _built(folder: Path) -> list[Path]:
    archives = [folder / "slopewise.tar", folder / "slopewise-trainer.tar"]
    digest, known = sources_digest(), folder / _DIGEST
    if all(each.exists() for each in (*archives, known)) and known.read_text(encoding="utf-8") == digest:
        return archives
    known.unlink(missing_ok=True)
    build = run("bash", str(SCRIPT), str(folder))
    assert build.returncode == 0, f"{build.stdout[-1000:]}\n{build.stderr[-4000:]}"
    known.write_text(digest, encoding="utf-8")
    return archives


def sources_digest() -> str:
    """Of everything that the builds can see, by path and content."""
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    context = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    digest = hashlib.sha256()
    for path in sorted(each for name in (*context, *_BESIDE_THE_CONTEXT) for each in _files(ROOT / name)):
        digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for each in path.rglob("*"):
        if each.is_file() and not any(part.endswith(_LEFT_OUT) for part in each.parts):
            yield each


def _config_digest(settings: Settings, ctr: Path, node: Node, name: str) -> str | None:
    """What identifies an image wherever it is stored; None: the node does not have one of that name."""
    command = [str(ctr), "--address", str(settings.containerd_socket(node)), "--namespace", "k8s.io"]
    listed = run(*command, "images", "ls", f"name==docker.io/library/{name}:{__version__}").stdout.splitlines()
    if len(listed) < 2:  # the first line is the table's head
        return None
    _, _, manifest, *_ = listed[1].split()
    digest: str = json.loads(run(*command, "content", "get", manifest).stdout)["config"]["digest"]
    return digest
