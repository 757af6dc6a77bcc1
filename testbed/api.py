"""Reads and applies objects of the test-bed's API server, and waits for their states.

Objects are applied with the kubectl that was built with the server; reads go over HTTP, because a kubectl takes 0.1
s to start.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import requests
import yaml
from requests.adapters import HTTPAdapter

from slopewise.errors import SlopewiseError

_REQUEST_SECONDS = 5.0
_BULK_SECONDS = 75.0
"""The API server itself gives up after 60 s."""
_DELETE_TRIES = 5
_CONNECTIONS = 32
_POLL_SECONDS = 0.1


class Api:
    """A client with the rights of the kubeconfig's first user."""

    def __init__(self, kubeconfig: Path) -> None:
        """The file must be one that `identities.py` wrote."""
        found = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster = found["clusters"][0]["cluster"]
        self._url = cluster["server"]
        self._session = requests.Session()
        self._session.mount("https://", HTTPAdapter(pool_maxsize=_CONNECTIONS))
        self._session.trust_env = False  # HTTPS_PROXY is not for this machine
        self._session.verify = cluster["certificate-authority"]
        self._session.headers["Authorization"] = f"Bearer {found['users'][0]['user']['token']}"

    def get(self, path: str) -> Any:
        """The JSON at a path, e.g. `/api/v1/nodes`; None when it cannot be had just now."""
        try:
            answer = self._session.get(f"{self._url}{path}", timeout=_REQUEST_SECONDS)
            return answer.json() if answer.ok else None
        except (requests.RequestException, ValueError):
            return None

    def metadata(self, path: str) -> list[Any]:
        """The metadata of the objects of a list, without what else they hold; empty when it cannot be had just now."""
        accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
        answer = self._session.get(f"{self._url}{path}", timeout=_BULK_SECONDS, headers=accept)
        return [item["metadata"] for item in answer.json()["items"] or []] if answer.ok else []

    def exists(self, path: str) -> bool:
        """False only when the server says that there is no such object."""
        try:
            answer = self._session.get(f"{self._url}{path}", timeout=_REQUEST_SECONDS)
        except requests.RequestException:
            return True
        return bool(answer.status_code != requests.codes.not_found)

    def create(self, path: str, content: Mapping[str, object]) -> None:
        """Create an object, unless one of its name is there; SlopewiseError with the server's words."""
        answer = self._session.post(f"{self._url}{path}", json=content, timeout=_BULK_SECONDS)
        if not answer.ok and answer.status_code != requests.codes.conflict:
            raise SlopewiseError(f"{path}: {_words(answer)}")

    def delete(self, path: str) -> None:
        """Delete an object or a list of them, unless it is not there; SlopewiseError with the server's words."""
        for _ in range(_DELETE_TRIES):  # of 5,000 pods a busy server deletes as many as it can in a minute
            answer = self._session.delete(f"{self._url}{path}", timeout=_BULK_SECONDS)
            if answer.status_code != requests.codes.gateway_timeout:
                break
        if not answer.ok and answer.status_code != requests.codes.not_found:
            raise SlopewiseError(f"{path}: {_words(answer)}")

    def is_ready(self) -> bool:
        """True when it says so itself."""
        try:
            return self._session.get(f"{self._url}/readyz", timeout=_REQUEST_SECONDS).ok
        except requests.RequestException:
            return False

    def ready_nodes(self) -> set[str]:
        """The names of the nodes whose condition Ready is True."""
        answer = self.get("/api/v1/nodes") or {"items": []}
        return {node["metadata"]["name"] for node in answer["items"] if _is_ready(node)}


def wait_until(done: Callable[[], bool], what: str, seconds: float, why_not: Callable[[], str] = str) -> None:
    """Look until it is done; SlopewiseError with `why_not`, e.g. the end of a log, when it takes longer."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() >= deadline:
            raise SlopewiseError(f"{what}: not within {seconds:g} s. {why_not()}".rstrip())
        time.sleep(_POLL_SECONDS)


def apply(kubectl: Path, kubeconfig: Path, objects: Iterable[Mapping[str, object]]) -> None:
    """Create or change objects; SlopewiseError with the server's words."""
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
    done = subprocess.run(
        [str(kubectl), f"--kubeconfig={kubeconfig}", "apply", "--server-side", "--force-conflicts", "-f", "-"],
        input=bundle, capture_output=True, text=True, check=False,
        env={"NO_PROXY": "*", "HOME": str(kubeconfig.parent)},
    )  # fmt: skip
    if done.returncode != 0:
        raise SlopewiseError(f"kubectl apply: {done.stderr.strip()}")


def _words(answer: requests.Response) -> str:
    try:
        return str(answer.json()["message"])
    except (ValueError, KeyError):
        return f"HTTP {answer.status_code}"


def _is_ready(node: Mapping[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)
