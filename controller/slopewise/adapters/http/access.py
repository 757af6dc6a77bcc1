"""Builds headers, TLS context and proxy from an `http_config`, and detects changed files.

`HttpAccess.is_current` compares each file with its stamp, which costs microseconds, before each use. Secrets are in
no `repr`, and `mask` removes them from foreign text, because a server or a proxy may quote the request that it
refuses.
"""

from __future__ import annotations

import base64
import ipaddress
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment

from slopewise.adapters.http.config import BasicAuth, Endpoint, HttpConfig, TlsConfig, load_http_config, split_url
from slopewise.adapters.http.secret_files import CONTROL_CHARACTER, Mask, SecretFiles, Stamp, stamp_or_none
from slopewise.adapters.http.tls import tls_context


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
    follow_redirects: bool = True
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
        return all(stamp_or_none(path) == stamp for path, stamp in self.stamps.items())


def read_access(endpoint: Endpoint) -> HttpAccess:
    """Read the `http_config` of an endpoint and every file that it names; UsageError says what cannot be used."""
    url = urlsplit(endpoint.url)
    if endpoint.config_file is None:
        files = SecretFiles(Path())
        return HttpAccess(tls_context(TlsConfig(), files) if url.scheme == "https" else None)
    files = SecretFiles(endpoint.config_file)
    files.note(endpoint.config_file, "")
    config = load_http_config(endpoint.config_file)
    authorization, credentials = _authorization(config, files)
    headers = {**authorization, **_further_headers(config, files)}
    proxy = _proxy(config, url, files)
    return HttpAccess(
        tls=tls_context(config.tls_config, files),
        headers=headers,
        server_name=config.tls_config.server_name,
        proxy=proxy,
        follow_redirects=config.follow_redirects,
        mask=Mask(files.secrets),
        credentials=credentials,
        cautions=tuple(_cautions(url, config, has_secrets=bool(files.secrets))),
        shows_certificate=config.tls_config.has_certificate,
        stamps=files.stamps,
    )


def _authorization(config: HttpConfig, files: SecretFiles) -> tuple[Mapping[str, str], str | None]:
    """The header with the credentials, and the part of the document that it comes from."""
    if config.basic_auth is not None:
        return {"Authorization": _user_and_password(config.basic_auth, files)}, "basic_auth"
    if (given := config.authorization) is not None:
        key = "authorization.credentials"
        token = files.secret(given.credentials, given.credentials_file, key)
        return {"Authorization": f"{given.type} {_latin(token, key, files)}"}, "authorization"
    if config.bearer_token or config.bearer_token_file:
        token = files.secret(config.bearer_token, config.bearer_token_file, "bearer_token")
        return {"Authorization": f"Bearer {_latin(token, 'bearer_token', files)}"}, "bearer_token"
    return {}, None


def _user_and_password(given: BasicAuth, files: SecretFiles) -> str:
    user = given.username or ""
    if given.username_file is not None:
        user = files.content(given.username_file, "basic_auth.username_file")
        files.secrets.discard(user)  # a user's name is no secret, and often a word of any text
    if ":" in user or CONTROL_CHARACTER.search(user):
        files.refuse("basic_auth", "the user's name holds a colon or a control character, which cannot be sent")
    return _basic(user, files.secret(given.password, given.password_file, "basic_auth.password"), files)


def _basic(user: str, password: str, files: SecretFiles) -> str:
    """In UTF-8, as Prometheus sends it."""
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    files.secrets.add(encoded)
    return f"Basic {encoded}"


def _further_headers(config: HttpConfig, files: SecretFiles) -> Mapping[str, str]:
    found = {}
    for name, given in config.http_headers.items():
        key = f"http_headers.{name}"
        values = [*given.values]
        values += [files.secret(secret, None, f"{key}.secrets") for secret in given.secrets]
        values += [files.content(named, f"{key}.files") for named in given.files]
        found[name] = _latin(_one_line(", ".join(values), key, files), key, files)
    return found


def _one_line(value: str, key: str, files: SecretFiles) -> str:
    if CONTROL_CHARACTER.search(value):
        files.refuse(key, "holds more than one line, or control characters, which cannot be sent")
    return value


def _latin(value: str, key: str, files: SecretFiles) -> str:
    """A header's value goes out in Latin-1, and the client quotes one that does not fit into its own error."""
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        files.refuse(key, "holds characters that no header may have; write letters, digits and signs of ASCII")
    return value


# --- the proxy -------------------------------------------------------------------------------------------------


def _proxy(config: HttpConfig, target: SplitResult, files: SecretFiles) -> Proxy | None:
    if config.proxy_url is not None:
        past = config.no_proxy is not None and _goes_past(target, config.no_proxy)
        named, url = "proxy_url", None if past else config.proxy_url.get_secret_value()
    elif config.proxy_from_environment:
        found = getproxies_environment()
        named, url = f"{target.scheme.upper()}_PROXY", found.get(target.scheme)
        url = None if _goes_past(target, found.get("no", "")) else url
    else:
        return None
    if url is None:
        return None
    parts = split_url(url)
    if parts is None:
        files.refuse(named, "is not the URL of an HTTP proxy; write it like http://proxy.example.org:3128")
    return Proxy(without_user(parts), _proxy_headers(config, parts, files))


def _proxy_headers(config: HttpConfig, proxy: SplitResult, files: SecretFiles) -> Mapping[str, str]:
    headers = {}
    for name, values in config.proxy_connect_header.items():
        key = f"proxy_connect_header.{name}"
        headers[name] = _latin(", ".join(files.secret(value, None, key) for value in values), key, files)
    if proxy.username is not None:
        user, password = unquote(proxy.username), unquote(proxy.password or "")
        headers["Proxy-Authorization"] = _basic(user, files.checked(password, "proxy_url"), files)
    return headers


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
