"""A real Alertmanager, which calls the controller's webhook; alerts come to it as Prometheus sends them."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import requests
import yaml
from support.alerts import at
from support.programs import built, is_ok, running

from slopewise.adapters.local.prometheus_server import free_loopback_port
from testbed.builds import alertmanager_build

FOR_SECONDS = 120.0
"""How long Prometheus says that an alert goes on, unless it is sent again."""


class Alertmanager(AbstractContextManager["Alertmanager"]):
    """Calls `webhook_url` about every alert with the label `slopewise_freeze`, within a second."""

    def __init__(self, folder: Path, webhook_url: str, token_file: Path, repeat: str = "1h") -> None:
        self._webhook_url, self._token_file = webhook_url, token_file
        configuration = folder / "alertmanager.yml"
        configuration.write_text(yaml.safe_dump(self.configuration(repeat)))
        port = free_loopback_port()
        self.url = f"http://127.0.0.1:{port}"
        self.log = folder / "alertmanager.log"
        command = [
            str(built(alertmanager_build()) / "alertmanager"), f"--config.file={configuration}",
            f"--storage.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}", "--cluster.listen-address=",
        ]  # fmt: skip
        self._program = running(command, self.log, lambda: is_ok(f"{self.url}/-/ready"))
        self._program.__enter__()

    def configuration(self, repeat: str) -> dict[str, Any]:
        """As docs/freezes.md has it, but for the times."""
        authorization = {"type": "Bearer", "credentials_file": str(self._token_file)}
        webhook = {
            "url": self._webhook_url,
            "send_resolved": True,
            "max_alerts": 500,
            "http_config": {"authorization": authorization},
        }
        freezing = {
            "matchers": ['slopewise_freeze=~".+"'],
            "receiver": "slopewise",
            "group_by": ["..."],
            "group_wait": "0s",
            "group_interval": "1s",
            "repeat_interval": repeat,
            "continue": True,
        }
        return {
            "route": {"receiver": "people", "routes": [freezing]},
            "receivers": [{"name": "people"}, {"name": "slopewise", "webhook_configs": [webhook]}],
        }

    def __exit__(self, *_: object) -> None:
        self._program.__exit__(None, None, None)

    def fire(self, labels: dict[str, str], started: float, **annotations: str) -> None:
        """As Prometheus sends it in each of its evaluations."""
        self._send(labels, started, time.time() + FOR_SECONDS, annotations)

    def resolve(self, labels: dict[str, str], started: float) -> None:
        """As Prometheus sends it once the alert's condition no longer holds."""
        self._send(labels, started, time.time(), {})

    def _send(self, labels: dict[str, str], started: float, ends: float, annotations: dict[str, str]) -> None:
        alert = {"labels": labels, "annotations": annotations, "startsAt": at(started), "endsAt": at(ends)}
        with requests.Session() as session:
            session.trust_env = False
            session.post(f"{self.url}/api/v2/alerts", json=[alert], timeout=10).raise_for_status()
