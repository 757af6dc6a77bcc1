"""Certificates for tests, made by openssl: an authority, and what it signs for servers and clients."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

LOOPBACK = ("DNS:localhost", "IP:127.0.0.1")
_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files in PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates; `certificate` is its own, which a client names as `ca_file`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("openssl is not on the PATH; it makes the certificates of these tests")
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate, self._key = folder / f"{name}.crt", folder / f"{name}.key"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-nodes", "-days", "30", "-subj", f"/CN={name}",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign",
            "-keyout", self._key, "-out", self.certificate,
        )  # fmt: skip

    def sign(self, name: str, *hosts: str, days: int = 30, passphrase: str | None = None) -> Pair:
        """A certificate for these hosts, e.g. `DNS:localhost`; without any, for a client. `days` below 0: expired."""
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        protection = ("-nodes",) if passphrase is None else ("-passout", f"pass:{passphrase}")
        _openssl("req", *_NEW_KEY, *protection, "-subj", f"/CN={name}", "-keyout", pair.key, "-out", request)
        usage = "serverAuth" if hosts else "clientAuth"
        names = f"subjectAltName={','.join(hosts)}\n" if hosts else ""
        extensions.write_text(
            f"basicConstraints=critical,CA:FALSE\nauthorityKeyIdentifier=keyid\nextendedKeyUsage={usage}\n{names}"
        )
        _openssl(
            "x509", "-req", "-in", request, "-CA", self.certificate, "-CAkey", self._key, "-days", str(days),
            "-extfile", extensions, "-out", pair.certificate,
        )  # fmt: skip
        return pair


def _openssl(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stderr
