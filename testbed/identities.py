"""Writes the credentials of a cluster: one certificate authority, a token for each client, and kubeconfig files.

Each cluster gets new ones, readable by root only.
"""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Sequence
from pathlib import Path

from slopewise.errors import SlopewiseError
from testbed.settings import API_ADDRESS, KUBERNETES_SERVICE_ADDRESS, NODES, Settings

ADMINISTRATOR = "slopewise-testbed-admin"
PROMETHEUS = "slopewise-testbed-prometheus"
CONTROLLER_MANAGER = "system:kube-controller-manager"
SCHEDULER = "system:kube-scheduler"
PROXY = "system:kube-proxy"
_MASTERS = "system:masters"
_GROUPS = {
    ADMINISTRATOR: _MASTERS,
    PROMETHEUS: "",
    CONTROLLER_MANAGER: "",
    SCHEDULER: "",
    PROXY: "",
    **{f"system:node:{node.name}": "system:nodes" for node in NODES},
}
_DAYS = "30"


class Identities:
    """The files below `identities/` of a run folder."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.run_folder / "identities"
        self._settings = settings
        self.authority = self._folder / "ca.crt"
        self.authority_key = self._folder / "ca.key"
        self.server_certificate = self._folder / "api.crt"
        self.server_key = self._folder / "api.key"
        self.kubelet_client_certificate = self._folder / "kubelet-client.crt"
        self.kubelet_client_key = self._folder / "kubelet-client.key"
        self.accounts_key = self._folder / "accounts.key"
        self.accounts_public_key = self._folder / "accounts.pub"
        self.tokens = self._folder / "tokens.csv"

    def make(self) -> None:
        """Write them all; SlopewiseError with the words of openssl when it fails."""
        self._folder.mkdir(mode=0o700, parents=True)
        self._make_authority()
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"]
        hosts = [f"DNS:{name}" for name in names]
        hosts += [f"IP:{address}" for address in (API_ADDRESS, KUBERNETES_SERVICE_ADDRESS, "127.0.0.1")]
        self._sign(self.server_certificate, self.server_key, "/CN=kube-apiserver", "serverAuth", hosts)
        client = f"/O={_MASTERS}/CN=kube-apiserver-kubelet-client"
        self._sign(self.kubelet_client_certificate, self.kubelet_client_key, client, "clientAuth", [])
        _openssl("genrsa", "-out", str(self.accounts_key), "2048")
        _openssl("rsa", "-in", str(self.accounts_key), "-pubout", "-out", str(self.accounts_public_key))
        self._make_tokens()

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig file of one of the users above."""
        return self._folder / f"{_file_name(user)}.kubeconfig"

    def token_file(self, user: str) -> Path:
        """The token of one of the users above, alone in a file."""
        return self._folder / f"{_file_name(user)}.token"

    def _make_authority(self) -> None:
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", _DAYS,
            "-subj", "/CN=slopewise-testbed", "-addext", "keyUsage=critical,keyCertSign,digitalSignature",
            "-keyout", str(self.authority_key), "-out", str(self.authority),
        )  # fmt: skip

    def _sign(self, certificate: Path, key: Path, subject: str, usage: str, hosts: Sequence[str]) -> None:
        names = ["-addext", f"subjectAltName={','.join(hosts)}"] if hosts else []
        _openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", _DAYS,
            "-CA", str(self.authority), "-CAkey", str(self.authority_key), "-subj", subject,
            "-addext", "basicConstraints=critical,CA:FALSE", "-addext", f"extendedKeyUsage={usage}", *names,
            "-keyout", str(key), "-out", str(certificate),
        )  # fmt: skip

    def _make_tokens(self) -> None:
        lines = []
        for user, group in _GROUPS.items():
            token = secrets.token_hex(16)
            lines.append(f'{token},{user},{user},"{group}"\n')
            self.token_file(user).write_text(token)
            self.kubeconfig(user).write_text(json.dumps(self._kubeconfig(user, token), indent=1))
        self.tokens.write_text("".join(lines))
        self._settings.kubeconfig.touch(mode=0o600)
        self._settings.kubeconfig.write_text(self.kubeconfig(ADMINISTRATOR).read_text())

    def _kubeconfig(self, user: str, token: str) -> dict[str, object]:
        """The authority is named by its path: Kubernetes' clients and Python's both read it from there."""
        cluster = {"server": self._settings.api_url, "certificate-authority": str(self.authority)}
        name = "slopewise-testbed"
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": name,
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": user}}],
        }


def _file_name(user: str) -> str:
    return user.replace(":", "-")


def _openssl(*arguments: str) -> None:
    done = subprocess.run(
        ["openssl", *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    if done.returncode != 0:
        raise SlopewiseError(f"openssl {arguments[0]} failed: {done.stderr.strip()}")
