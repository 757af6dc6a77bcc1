"""A real Prometheus with a lock on it: TLS, basic auth and client certificates by its own `--web.config.file`."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
from support import programs
from support.certificates import Authority, Pair

from slopewise.adapters.local.prometheus_install import PrometheusBinaries
from slopewise.adapters.local.prometheus_server import free_loopback_port

USER = "slopewise"
PASSWORDS: Mapping[str, str] = {
    "first-password": "$2b$04$abcdefghijklmnopqrstuuT2j8U6U5rBY6aIOMzZiJOWuJPYKLLOe",
    "second-password": "$2b$04$abcdefghijklmnopqrstuukluLair1GoPMg9PQfjHAu2MGkeVdhk2",
}
"""Passwords and their bcrypt hashes of the lowest cost: Prometheus checks one with every request."""


@dataclass
class LockedPrometheus:
    """It scrapes by `scrape_configs`, and answers below `path`."""

    binaries: PrometheusBinaries
    folder: Path
    server: Pair
    path: str = ""
    clients_of: Authority | None = None
    scrape_configs: list[dict[str, Any]] = field(default_factory=list)
    scrape_interval: str = "500ms"
    host: str = "127.0.0.1"
    port: int = field(default_factory=free_loopback_port)

    @property
    def url(self) -> str:
        return f"https://{self.host}:{self.port}{self.path}"

    def let_in(self, password: str) -> None:
        """From now on; it looks at the file with every request."""
        tls: dict[str, Any] = {"cert_file": str(self.server.certificate), "key_file": str(self.server.key)}
        if self.clients_of is not None:
            tls |= {
                "client_auth_type": "RequireAndVerifyClientCert",
                "client_ca_file": str(self.clients_of.certificate),
            }
        document = {"tls_server_config": tls, "basic_auth_users": {USER: PASSWORDS[password]}}
        draft = self.folder / "web.draft"
        draft.write_text(json.dumps(document))
        draft.replace(self.folder / "web.yml")

    @contextmanager
    def running(self, ready: Pair | None = None) -> Iterator[None]:
        """From when it answers on. `ready`: the client certificate to ask with, where one is needed."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.let_in("first-password")
        interval = {"scrape_interval": self.scrape_interval, "scrape_timeout": self.scrape_interval}
        config = {"global": interval, "scrape_configs": self.scrape_configs}
        (self.folder / "prometheus.yml").write_text(json.dumps(config))
        with programs.running(self._command(), self.folder / "log", lambda: self._answers(ready)):
            yield

    def _command(self) -> list[str]:
        return [
            str(self.binaries.prometheus),
            f"--config.file={self.folder / 'prometheus.yml'}",
            f"--web.config.file={self.folder / 'web.yml'}",
            f"--web.listen-address={self.host}:{self.port}",
            f"--web.external-url={self.url}/",
            f"--storage.tsdb.path={self.folder / 'tsdb'}",
        ]

    def _answers(self, client: Pair | None) -> bool:
        with requests.Session() as session, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # nothing is verified here
            session.trust_env = False
            try:
                return session.get(
                    f"{self.url}/-/ready",
                    auth=(USER, "first-password"),
                    verify=False,
                    cert=None if client is None else (str(client.certificate), str(client.key)),
                    timeout=1,
                ).ok
            except requests.RequestException:
                return False
