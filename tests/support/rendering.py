"""The manifests as kustomize makes them: what an installation really gets."""

from __future__ import annotations

import pickle
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
MANIFESTS = ROOT / "manifests"
OVERLAYS = sorted(folder.name for folder in (MANIFESTS / "overlays").iterdir())

Documents = list[dict[str, Any]]
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the resource definitions are long: a tenth of the time


def render(folder: Path) -> Documents:
    """All objects of a kustomization; skipped where no kubectl renders it."""
    documents: Documents = pickle.loads(_rendered(folder))
    return documents


def render_mine(folder: Path, overlay: str, **customisation: Any) -> Documents:
    """What somebody's own kustomization in the empty `folder` makes of one of our overlays."""
    return render_in(folder, {"resources": [f"slopewise/manifests/overlays/{overlay}"], **customisation})


def render_in(folder: Path, kustomization: dict[str, Any]) -> Documents:
    """What a whole kustomization makes, which has our repository as `slopewise` beside it."""
    (folder / "slopewise").symlink_to(ROOT)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
    return _parsed(_kustomize(folder))


def only(documents: Documents, kind: str, name: str = "") -> dict[str, Any]:
    """The one object of that kind whose name begins so."""
    found = [d for d in documents if d["kind"] == kind and d["metadata"]["name"].startswith(name)]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def mounted(documents: Documents, name: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The container of the Deployment, its mount of this name, and the volume."""
    pod = only(documents, "Deployment")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (mount,) = [each for each in container["volumeMounts"] if each["name"] == name]
    (volume,) = [each for each in pod["volumes"] if each["name"] == name]
    return container, mount, volume


def _parsed(text: str) -> Documents:
    return list(yaml.load_all(text, _LOADER))


@cache
def _rendered(folder: Path) -> bytes:
    """Pickled, since parsing takes far longer, and a test may change what it gets."""
    return pickle.dumps(_parsed(_kustomize(folder)))


def _kustomize(folder: Path) -> str:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH; it renders the manifests")
    result = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout
