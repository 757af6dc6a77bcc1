"""Builds headers, TLS context and proxy from an `http_config`, and detects changed files.

Tokens, passwords and certificates rotate: `HttpAccess.is_current` compares each file with its stamp, which costs
microseconds, before each use. Secrets are in no `repr`, and `mask` removes them from foreign text, because a server or
a proxy may quote the request that it refuses.
"""

from __future__ import annotations

import base64
import html
import ipaddress
import json
import os
import re
import ssl
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from urllib.parse import SplitResult, quote, quote_plus, unquote, urlsplit
from urllib.request import getproxies_environment

from pydantic import SecretStr
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from slopewise.adapters.http.config import Endpoint, HttpConfig, TlsConfig, load_http_config, split_url
from slopewise.errors import UsageError

MAX_FILE_BYTES = 1024 * 1024
"""Bundles of authorities have 250 KB; a larger file was named by mistake."""

Stamp = tuple[int, int, int]
"""Inode (a Secret's volume changes it), bytes, and nanoseconds of the last change (an editor changes these)."""

_CONTROL_CHARACTER = re.compile(r"[\x00-\x1f\x7f]")


class Mask:
    """Takes secrets out of text, however it quotes them; its own `repr` shows how many."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        spellings = {
            spelling
            for secret in filter(None, secrets)
            for spelling in (
                secret, quote(secret), quote(secret, safe=""), quote_plus(secret), json.dumps(secret)[1:-1],
                html.escape(secret),
            )
        }  # fmt: skip
        self._spellings = sorted(spellings, key=len, reverse=True)

    def __call__(self, text: object) -> str:
        """The text with `<secret>` in the place of each secret."""
        shown = str(text)
        for spelling in self._spellings:
            shown = shown.replace(spelling, "<secret>")
        return shown

    def __repr__(self) -> str:
        return f"Mask({len(self._spellings)} spellings)"


@dataclass(frozen=True, slots=True)
class Proxy:
    """Through which server requests go: its URL, without user and password, which are among the headers for it."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class HttpAccess:
    """Headers, TLS context and proxy for one server."""

    tls: ssl.SSLContext | None = None
    """None: requests go without TLS."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    server_name: str | None = None
    proxy: Proxy | None = None
    mask: Mask = field(default_factory=Mask)
    credentials: str | None = None
    """The part of the `http_config` with the credentials, e.g. `basic_auth`; None: there are none."""
    cautions: tuple[str, ...] = ()
    """Warnings for the user who starts a controller with this configuration."""
    shows_certificate: bool = False
    """Whether a server that asks for a client certificate is shown one."""
    stamps: Mapping[Path, Stamp] = field(default_factory=dict, repr=False)

    def is_current(self) -> bool:
        """False once a file that this was read from has changed or gone."""
        with suppress(OSError):
            return all(_stamp(path) == stamp for path, stamp in self.stamps.items())
        return False


def read_access(endpoint: Endpoint) -> HttpAccess:
    """Read the `http_config` of an endpoint and every file that it names; UsageError says what cannot be used."""
    url = urlsplit(endpoint.url)
    if endpoint.config_file is None:
        return HttpAccess(_tls_context(TlsConfig(), _Files(Path())) if url.scheme == "https" else None)
    files = _Files(endpoint.config_file)
    files.path(endpoint.config_file.name)
    config = load_http_config(endpoint.config_file)
    headers, credentials = _authorization(config, files)
    for name, given in config.http_headers.items():
        key = f"http_headers.{name}"
        values = [*given.values, *(files.secret(each, None, f"{key}.secrets") for each in given.secrets)]
        values += [files.content(named, f"{key}.files") for named in given.files]
        headers[name] = files.header(", ".join(values), key)
    proxy = _proxy(config, url, files)
    return HttpAccess(
        tls=_tls_context(config.tls_config, files),
        headers=headers,
        server_name=config.tls_config.server_name,
        proxy=proxy,
        mask=Mask(files.secrets),
        credentials=credentials,
        cautions=tuple(_cautions(url, config, has_secrets=bool(files.secrets))),
        shows_certificate=config.tls_config.cert_file is not None,
        stamps=files.stamps,
    )


class _Files:
    """Reads the files that an `http_config` names, beside which relative paths are looked for."""

    def __init__(self, config_file: Path) -> None:
        self._config_file = config_file
        self.stamps: dict[Path, Stamp] = {}
        self.secrets: set[str] = set()

    def path(self, named: str, key: str = "") -> str:
        """The path of a named file, checked to be readable, and noted as it is before it is read."""
        path = self._config_file.parent / named
        try:
            self.stamps[path] = _stamp(path)
        except OSError as error:
            place = f"{self._config_file}: {key}: " if key else ""
            reason = error.strerror or str(error)
            raise UsageError(f"{place}{path} cannot be read ({reason}); give the path of a readable file.") from None
        return str(path)

    def secret(self, given: SecretStr | None, named: str | None, key: str) -> str:
        """A secret that was written, or the content of the file that is named instead; without either, empty."""
        if named is not None:
            return self.content(named, f"{key}_file")
        return self._checked("" if given is None else given.get_secret_value(), key)

    def content(self, named: str, key: str) -> str:
        """What is in a file that holds a secret, without the white space around it."""
        path = self.path(named, key)
        try:
            text = Path(path).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            self.refuse(key, f"{path} cannot be read as text; write the secret alone into it")
        if not text:
            self.refuse(key, f"{path} is empty; write the secret into it")
        return self._checked(text, key)

    def basic(self, user: str, password: str, key: str) -> str:
        """The value of a header, in UTF-8 as Prometheus sends it."""
        encoded = base64.b64encode(f"{user}:{self._checked(password, key)}".encode()).decode()
        self.secrets.add(encoded)
        return f"Basic {encoded}"

    def header(self, value: str, key: str) -> str:
        """The value of a header: one line in Latin-1; the client quotes one that does not fit into its own error."""
        try:
            self._one_line(value, key).encode("latin-1")
        except UnicodeEncodeError:
            self.refuse(key, "holds characters that no header may have; write letters, digits and signs of ASCII")
        return value

    def refuse(self, key: str, reason: str) -> NoReturn:
        """UsageError about one key."""
        raise UsageError(f"{self._config_file}: {key}: {reason}.")

    def _checked(self, secret: str, key: str) -> str:
        """A secret as it may be sent, which is masked from now on."""
        if secret:
            self.secrets.add(self._one_line(secret, key))
        return secret

    def _one_line(self, value: str, key: str) -> str:
        if _CONTROL_CHARACTER.search(value):
            self.refuse(key, "holds more than one line, or control characters, which cannot be sent")
        return value


def _stamp(path: Path) -> Stamp:
    """OSError where it cannot be read: before it is opened, because a pipe would never end."""
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is not a regular file")
    if found.st_size > MAX_FILE_BYTES:
        raise OSError(0, "it has more than 1 MiB")
    if not os.access(path, os.R_OK):
        raise PermissionError(0, "permission denied")
    return found.st_ino, found.st_size, found.st_mtime_ns


def _authorization(config: HttpConfig, files: _Files) -> tuple[dict[str, str], str | None]:
    """The header with the credentials, and the part of the document that it comes from."""
    if (basic := config.basic_auth) is not None:
        if ":" in basic.username or _CONTROL_CHARACTER.search(basic.username):
            files.refuse("basic_auth", "the user's name holds a colon or a control character, which cannot be sent")
        password = files.secret(basic.password, basic.password_file, "basic_auth.password")
        return {"Authorization": files.basic(basic.username, password, "basic_auth.password")}, "basic_auth"
    if (given := config.authorization) is None:
        return {}, None
    token = files.secret(given.credentials, given.credentials_file, "authorization.credentials")
    value = f"{given.type} {files.header(token, 'authorization.credentials')}"
    return {"Authorization": value}, "authorization"


# --- TLS -------------------------------------------------------------------------------------------------------


def _tls_context(given: TlsConfig, files: _Files) -> ssl.SSLContext:
    """As Prometheus' own client: any certificate that is trusted is an anchor, and host names are not in `CN`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    system = ssl.get_default_verify_paths()
    try:
        if given.ca_file is not None:
            context.load_verify_locations(cafile=files.path(given.ca_file, "tls_config.ca_file"))
        elif system.cafile or (system.capath and next(Path(system.capath).glob("*"), None)):
            context.set_default_verify_paths()
        else:  # Mozilla's authorities, where the system has none, as in an image without ca-certificates
            context.load_verify_locations(cafile=DEFAULT_CA_BUNDLE_PATH)
    except (ssl.SSLError, ValueError, OSError):
        files.refuse("tls_config.ca_file", "holds no certificates; write those of the authority, in PEM")
    if given.cert_file is not None and given.key_file is not None:
        certificate = files.path(given.cert_file, "tls_config.cert_file")
        key = files.path(given.key_file, "tls_config.key_file")
        try:
            # Without a password OpenSSL would prompt for it on the terminal, and wait.
            context.load_cert_chain(certificate, key, password=lambda: "")
        except (ssl.SSLError, ValueError, OSError):
            unusable = "the client certificate and its key cannot be used"
            files.refuse("tls_config", f"{unusable}; write a pair in PEM, the key without a passphrase")
    if given.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


# --- the proxy -------------------------------------------------------------------------------------------------


def _proxy(config: HttpConfig, target: SplitResult, files: _Files) -> Proxy | None:
    url: str | None
    if config.proxy_url is not None:
        key, url, past = "proxy_url", config.proxy_url.get_secret_value(), config.no_proxy
    elif config.proxy_from_environment:
        found = getproxies_environment()
        key, url, past = f"{target.scheme.upper()}_PROXY", found.get(target.scheme), found.get("no", "")
    else:
        return None
    if url is None or (past is not None and _goes_past(target, past)):
        return None
    if (parts := split_url(url)) is None:
        files.refuse(key, "is not the URL of an HTTP proxy; write it like http://proxy.example.org:3128")
    if parts.username is None:
        return Proxy(without_user(parts))
    user, password = unquote(parts.username), unquote(parts.password or "")
    return Proxy(without_user(parts), {"Proxy-Authorization": files.basic(user, password, "proxy_url")})


def _goes_past(target: SplitResult, no_proxy: str) -> bool:
    """Whether requests to a host bypass the proxy: by name, domain, address or network; always for this machine."""
    host, port = (target.hostname or "").lower(), target.port or (443 if target.scheme == "https" else 80)
    entries = [each.strip().lower() for each in no_proxy.split(",") if each.strip()]
    named = [each.removesuffix(f":{port}").removeprefix("*") for each in entries]
    if "" in named or any(f".{host}".endswith(f".{each.lstrip('.')}") for each in named):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or any(address in network for network in _networks(named))


def _networks(named: Iterable[str]) -> Iterator[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    for each in named:
        with suppress(ValueError):
            yield ipaddress.ip_network(each.strip("[]"), strict=False)


def without_user(parts: SplitResult) -> str:
    """The URL without what is before an @ in its host."""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def _cautions(url: SplitResult, config: HttpConfig, *, has_secrets: bool) -> Iterator[str]:
    host = f"{url.scheme}://{url.netloc}"
    if url.scheme == "https" and config.tls_config.insecure_skip_verify:
        yield f"The certificate of {host} is not checked (insecure_skip_verify): credentials may reach somebody else."
    if url.scheme == "http" and has_secrets and not _goes_past(url, ""):
        yield f"Credentials go to {host} in clear text; write https:// if it speaks TLS."
