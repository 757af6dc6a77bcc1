"""Puts our dashboards into a Grafana (`slopewise dashboards push`), or into a folder for provisioning (`export`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grafana_api.grafana_face import GrafanaFace

from slopewise import __version__
from slopewise.adapters.grafana.client import connect, message_of
from slopewise.errors import UsageError

DEFAULT_FOLDER = "Slopewise"
PROVIDER = "slopewise-provider.yaml"
_PACKAGE = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class PushResult:
    """One dashboard that Grafana now has. `url` opens it; `created` is False when it replaced a former version."""

    uid: str
    title: str
    url: str
    created: bool

    def __str__(self) -> str:
        return f"{'created' if self.created else 'replaced'} {self.title}: {self.url}"


def dashboards_folder() -> Path:
    """Where the shipped JSON is: inside the package in a wheel, in grafana/ in a checkout."""
    packaged = _PACKAGE / "dashboards"
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / "grafana" / "dashboards"


def push_dashboards(
    url: str,
    token: str,
    folder: str = DEFAULT_FOLDER,
    *,
    timeout_seconds: float = 10.0,
) -> list[PushResult]:
    """Create or replace every dashboard of ours in `folder`, which is created when Grafana has none of that title.

    `url` is Grafana's address with its path, e.g. `https://example.org/grafana`. `token` is that of a service
    account with the role Editor. `timeout_seconds` bounds the wait for a connection and for each piece of an answer.

    Raises UsageError when an argument cannot be used, DataSourceError when Grafana cannot be reached
    or what answers is not Grafana, SlopewiseError when Grafana refuses. What was pushed before an error stays:
    a second push replaces it.
    """
    grafana, documents = connect(url, token, timeout_seconds), _shipped()
    with message_of(url, timeout_seconds):
        folder_uid = _ensure_folder(grafana, folder)
        return [_push(grafana, document, folder_uid, url) for document in documents]


def _shipped() -> list[dict[str, Any]]:
    """The dashboards, in the order of their file names."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(dashboards_folder().glob("*.json"))]


def _ensure_folder(grafana: GrafanaFace, title: str) -> str:
    """The uid of the folder with this title, made now when there is none; the root, `General`, has none."""
    if title in ("", "General"):
        return ""
    for folder in grafana.folder.get_all_folders():
        if folder["title"] == title:
            return str(folder["uid"])
    return str(grafana.folder.create_folder(title)["uid"])


def _push(grafana: GrafanaFace, document: Mapping[str, Any], folder_uid: str, url: str) -> PushResult:
    answer = grafana.dashboard.update_dashboard(
        {
            "dashboard": {**document, "id": None},  # an id is one Grafana's own number; the uid is ours
            "folderUid": folder_uid,
            "overwrite": True,
            "message": f"slopewise {__version__}",
        }
    )
    return PushResult(
        uid=document["uid"],
        title=document["title"],
        url=f"{url.rstrip('/')}/d/{document['uid']}",
        created=answer["version"] == 1,
    )


def export_dashboards(folder: Path) -> list[Path]:
    """Write every dashboard of ours into `folder`, which is made where it is missing, and a provider that names it.

    Grafana reads the provider from its own folder `provisioning/dashboards`. Files of the same names are replaced, and
    no others are touched. UsageError when the folder cannot be written.
    """
    written = {folder / f"{document['uid']}.json": _as_text(document) for document in _shipped()}
    written[folder / PROVIDER] = _provider(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in written.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror}); name another folder.") from error
    return list(written)


def _as_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _provider(folder: Path) -> str:
    """JSON is YAML, and a path needs no quoting rules of our own in it."""
    options = {"path": str(folder.absolute())}
    provider = {"name": "slopewise", "folder": DEFAULT_FOLDER, "type": "file", "options": options}
    return json.dumps({"apiVersion": 1, "providers": [provider]}, indent=2) + "\n"
