"""Builds what a release consists of into `dist/`: wheels, source archives, manifests, SBOM, image, and their checksums.

Made of the same commit by the same tools, everything but the image has the same bytes: its dates are the commit's.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from release import installation, readiness
from release.commands import call
from release.versions import ROOT

DIST = ROOT / "dist"
CHECKSUMS = "SHA256SUMS"


def build_release(dist: Path = DIST) -> None:
    """Make everything again in `dist`; UsageError before it begins. Without `SHA256SUMS` it is incomplete."""
    readiness.refuse_without_tools()
    version = readiness.refuse_unreproducible()
    dated = {"SOURCE_DATE_EPOCH": call("git", "log", "-1", "--format=%ct").strip()}
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    _say("wheels and source archives")
    build_packages(dist, dated)
    _say("the wheels, installed")
    with installation.installed(dist, version) as environment:
        installation.check(environment, version)
        write_sbom(environment.python, dist / f"slopewise-{version}.cdx.json", version, dated)
    _say("manifests")
    write_manifests(dist, version)
    write_chart(dist, version)
    _say("image")
    write_image(dist, version)
    write_checksums(dist)
    _say(f"{dist} has {version}")


@contextmanager
def packages_of_now() -> Iterator[Path]:
    """A folder with the packages of the tree as it is, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="slopewise-wheels-") as folder:
        build_packages(Path(folder))
        yield Path(folder)


def build_packages(folder: Path, dated: Mapping[str, str] | None = None) -> None:
    """A wheel and a source archive of the controller, and of the exporter."""
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", folder)
    for source in (ROOT, ROOT / "exporters"):
        call(*command, cwd=source, variables=dated)


def write_sbom(python: Path, path: Path, version: str, dated: Mapping[str, str]) -> None:
    """What is installed there, with licences and who needs whom, as CycloneDX."""
    program = Path(sys.executable).with_name("cyclonedx-py")
    listed = call(
        program, "environment", "--pyproject", ROOT / "pyproject.toml", "--output-reproducible", python, variables=dated
    )
    document = json.loads(listed)
    document["metadata"]["component"]["version"] = version  # pyproject.toml has none, as hatch reads it elsewhere
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def write_manifests(folder: Path, version: str) -> None:
    """Each overlay as `kubectl apply --server-side -f` takes it."""
    for overlay in sorted((ROOT / "manifests/overlays").iterdir()):
        rendered = call("kubectl", "kustomize", overlay)
        (folder / f"slopewise-{version}-{overlay.name}.yaml").write_text(rendered, encoding="utf-8")


def write_chart(folder: Path, version: str) -> None:
    """The Helm chart as `helm install` takes it."""
    chart = ROOT / "manifests/chart/slopewise"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for path in chart.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(str(path.relative_to(chart.parent)))  # without owner and date
            entry.size = path.stat().st_size
            with path.open("rb") as file:
                archive.addfile(entry, file)
    compressed = gzip.compress(packed.getvalue(), mtime=0)
    (folder / f"slopewise-{version}-chart.tgz").write_bytes(compressed)


def write_image(folder: Path, version: str) -> None:
    """The controller's image as `docker load` and `ctr images import` take it."""
    revision = call("git", "rev-parse", "HEAD").strip()
    with tempfile.TemporaryDirectory(prefix="slopewise-image-") as scratch:
        call("bash", ROOT / "tests/image/build_image.sh", scratch, "slopewise", variables={"REVISION": revision})
        packed = folder / f"slopewise-{version}-image.tar.gz"
        with (Path(scratch) / "slopewise.tar").open("rb") as tar, gzip.GzipFile(packed, "wb", 6, mtime=0) as file:
            shutil.copyfileobj(tar, file)


def write_checksums(folder: Path) -> None:
    """Of every file, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name != CHECKSUMS)
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def _say(what: str) -> None:
    print(f"release: {what}", file=sys.stderr, flush=True)
