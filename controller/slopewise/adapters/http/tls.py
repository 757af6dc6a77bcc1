"""The `tls_config` of an `http_config` as a context: whom to trust, which certificate to show, which versions to speak.

`http/access.py` makes one for each server. What OpenSSL does differently from Prometheus' own client is set as there.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from slopewise.adapters.http.config import TlsConfig
from slopewise.adapters.http.secret_files import SecretFiles

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


def tls_context(given: TlsConfig, files: SecretFiles) -> ssl.SSLContext:
    """As Prometheus' own client: any certificate that is trusted is an anchor, and host names are not in `CN`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[given.min_version]
    if given.max_version is not None:
        context.maximum_version = _VERSIONS[given.max_version]
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _trust(context, given, files)
    _show_certificate(context, given, files)
    if given.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _trust(context: ssl.SSLContext, given: TlsConfig, files: SecretFiles) -> None:
    try:
        if given.ca_file is not None:
            context.load_verify_locations(cafile=files.path(given.ca_file, "tls_config.ca_file"))
        elif given.ca is not None:
            context.load_verify_locations(cadata=given.ca)
        else:
            _trust_the_system(context)
    except (ssl.SSLError, ValueError, OSError):
        key = "ca" if given.ca_file is None else "ca_file"
        files.refuse(f"tls_config.{key}", "holds no certificates; write those of the authority, in PEM")


def _trust_the_system(context: ssl.SSLContext) -> None:
    """The system's authorities, and Mozilla's where the system has none, as in an image without ca-certificates."""
    paths = ssl.get_default_verify_paths()
    if paths.cafile or (paths.capath and next(Path(paths.capath).glob("*"), None)):
        context.set_default_verify_paths()
    else:
        context.load_verify_locations(cafile=DEFAULT_CA_BUNDLE_PATH)


def _show_certificate(context: ssl.SSLContext, given: TlsConfig, files: SecretFiles) -> None:
    if not given.has_certificate:
        return
    key = "" if given.key is None else given.key.get_secret_value()
    with (
        _as_file(given.cert or "", given.cert_file, "tls_config.cert_file", files) as certificate_path,
        _as_file(key, given.key_file, "tls_config.key_file", files) as key_path,
    ):
        try:
            # Without a password OpenSSL would prompt for it on the terminal, and wait.
            context.load_cert_chain(certificate_path, key_path, password=lambda: "")
        except (ssl.SSLError, ValueError, OSError) as error:
            files.refuse("tls_config", _what_is_wrong_with_the_pair(error))


def _what_is_wrong_with_the_pair(error: Exception) -> str:
    if "KEY_VALUES_MISMATCH" in str(error):
        return "the key is not that of the certificate; name the two that belong together"
    return "the client certificate and its key cannot be read; write both in PEM, the key without a passphrase"


@contextmanager
def _as_file(text: str, named: str | None, key: str, files: SecretFiles) -> Iterator[str]:
    """The path of what is in a file, or of one that is on no disk: OpenSSL reads a certificate to show from files."""
    if named is not None:
        yield files.path(named, key)
        return
    with os.fdopen(os.memfd_create("slopewise"), "wb") as file:
        file.write(text.encode())
        file.flush()
        yield f"/proc/self/fd/{file.fileno()}"
