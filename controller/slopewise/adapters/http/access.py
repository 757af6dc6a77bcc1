"""Builds headers, TLS context and proxy from an `http_config`, and detects changed files.

`HttpAccess.is_current` compares each file with its stamp, which costs microseconds, before each use. Secrets are in
no `repr`, and `mask` removes them from foreign text, because a server or a proxy may quote the request that it
refuses.
"""

from __future__ import annotations

import base64
import ipaddress
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies_environment

from requests.utils import DEFAULT_CA_BUNDLE_PATH

from slopewise.adapters.http.config import BasicAuth, Endpoint, HttpConfig, TlsConfig, load_http_config, split_url
from slopewise.adapters.http.secret_files import CONTROL_CHARACTER, Mask, SecretFiles, Stamp, stamp_or_none

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}


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
        return HttpAccess(_tls_context(TlsConfig(), files) if url.scheme == "https" else None)
    files = SecretFiles(endpoint.config_file)
    files.path(endpoint.config_file.name)
    config = load_http_config(endpoint.config_file)
    authorization, credentials = _authorization(config, files)
    headers = {**authorization, **_further_headers(config, files)}
    proxy = _proxy(config, url, files)
    return HttpAccess(
        tls=_tls_context(config.tls_config, files),
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
        found[name] = _latin(", ".join(values), key, files)
    return found


def _latin(value: str, key: str, files: SecretFiles) -> str:
    """A header's value is one line in Latin-1; the client quotes one that does not fit into its own error."""
    if CONTROL_CHARACTER.search(value):
        files.refuse(key, "holds more than one line, or control characters, which cannot be sent")
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        files.refuse(key, "holds characters that no header may have; write letters, digits and signs of ASCII")
    return value


# --- TLS -------------------------------------------------------------------------------------------------------


def _tls_context(given: TlsConfig, files: SecretFiles) -> ssl.SSLContext:
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
            if "KEY_VALUES_MISMATCH" in str(error):
                files.refuse("tls_config", "the key is not that of the certificate; name the two that belong together")
            unread = "the client certificate and its key cannot be read"
            files.refuse("tls_config", f"{unread}; write both in PEM, the key without a passphrase")


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
