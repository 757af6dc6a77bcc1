"""Validates the `http_config` file of an HTTP client: credentials, TLS, headers and proxy.

The keys are Prometheus' own: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config. The
file is what `promtool --http.config.file` reads. `http/access.py` reads the files that it names. An error message
repeats no value, because any value may be a secret in the wrong place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal
from urllib.parse import SplitResult, urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from slopewise.config.validation import load_yaml, validation_message
from slopewise.errors import UsageError

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A header's name, and a scheme of authorization (RFC 9110, 5.6.2)."""

_RESERVED_HEADER = re.compile(
    "(?i)authorization|host|content-(encoding|length|type)|user-agent|connection|keep-alive|www-authenticate"
    "|accept-encoding|proxy-auth(enticate|orization)|x-prometheus-(remote-(write|read)-version|scrape-timeout-seconds)"
    "|x-amz-(date|security-token|content-sha256)"
)
"""What Prometheus itself refuses among `http_headers` (`ReservedHeaders` of prometheus/common)."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A Prometheus, or what speaks like one, as a command line names it. Its URL may be shown: it holds no secret."""

    url: str
    config_file: Path | None = None
    """Its `http_config`; None: no credentials, the system's authorities, no proxy."""

    def __post_init__(self) -> None:
        parts = split_url(self.url)
        if "@" in (self.url if parts is None else parts.netloc) or (parts is not None and parts.query):
            raise UsageError(
                "The URL of Prometheus holds a user, a password or a token, and URLs are shown in logs and process "
                "lists; write it without, and those as basic_auth or authorization into a file that "
                "--prometheus-config names."
            )
        if parts is None or parts.fragment:
            raise UsageError(f"{self.url!r} is not the URL of a Prometheus; write it like http://127.0.0.1:9090.")


class HttpDocument(BaseModel):
    """Base of the parts: unknown keys are refused, and no message repeats what was written."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    exclusive: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Keys of which one at most may be written."""

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, document: object) -> object:
        """An unknown key is repeated only where it is a known one mistyped: it may be a secret in the wrong place."""
        if not isinstance(document, Mapping):
            raise ValueError(f"must be a mapping of keys to values, not {type(document).__name__}")  # noqa: TRY004
        known = sorted(cls.model_fields)
        for key in (str(key) for key in document if key not in known):
            if meant := difflib.get_close_matches(key, known, 1, 0.8):
                raise ValueError(f"{key} is an unknown key; write {meant[0]}")
            raise ValueError(f"holds an unknown key; it may hold {', '.join(known)}")
        return document

    @model_validator(mode="after")
    def _at_most_one(self) -> HttpDocument:
        for names in self.exclusive:
            if len(given := [name for name in names if getattr(self, name)]) > 1:
                raise ValueError(f"{given[0]} and {given[1]} exclude each other; leave one of them out")
        return self


class BasicAuth(HttpDocument):
    """User and password, sent with every request."""

    exclusive = (("username", "username_file"), ("password", "password_file"))
    username: str | None = None
    username_file: str | None = None
    password: SecretStr | None = None
    password_file: str | None = None

    @model_validator(mode="after")
    def _names_a_user(self) -> BasicAuth:
        if not (self.username or self.username_file):
            raise ValueError("names no user; add username or username_file")
        return self


class Authorization(HttpDocument):
    """The header `Authorization`: a scheme and its credentials."""

    exclusive = (("credentials", "credentials_file"),)
    type: str = "Bearer"
    credentials: SecretStr | None = None
    credentials_file: str | None = None

    @model_validator(mode="after")
    def _can_be_sent(self) -> Authorization:
        if not (self.credentials or self.credentials_file):
            raise ValueError("names no credentials; add credentials_file or credentials")
        if self.type.lower() == "basic":
            raise ValueError("type cannot be Basic; use basic_auth instead")
        if not _TOKEN.fullmatch(self.type):
            raise ValueError("type is not a scheme of authorization; write Bearer, and the token as credentials")
        return self


class TlsConfig(HttpDocument):
    """Whom to trust, and which certificate to show."""

    exclusive = (("ca", "ca_file"), ("cert", "cert_file"), ("key", "key_file"))
    ca: str | None = None
    ca_file: str | None = None
    cert: str | None = None
    cert_file: str | None = None
    key: SecretStr | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False
    min_version: Literal["TLS12", "TLS13"] = "TLS12"
    max_version: Literal["TLS12", "TLS13"] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> TlsConfig:
        has_key = self.key is not None or self.key_file is not None
        if self.has_certificate != has_key:
            missing = "key_file" if self.has_certificate else "cert_file"
            raise ValueError(f"a client certificate needs both cert_file and key_file; add {missing}")
        if (self.min_version, self.max_version) == ("TLS13", "TLS12"):
            raise ValueError("min_version is above max_version; swap them")
        return self

    @property
    def has_certificate(self) -> bool:
        """Whether a client certificate is shown to a server that asks for one."""
        return self.cert is not None or self.cert_file is not None


class HeaderValues(HttpDocument):
    """The values of one further header; several are sent as one list, separated by commas."""

    values: tuple[str, ...] = ()
    secrets: tuple[SecretStr, ...] = ()
    files: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_one(self) -> HeaderValues:
        if not (self.values or self.secrets or self.files):
            raise ValueError("has no value; add values, secrets or files")
        return self


class HttpConfig(HttpDocument):
    """One `http_config`. Without any key it means what it means to Prometheus: no credentials and no proxy."""

    exclusive = (
        ("basic_auth", "authorization", "bearer_token", "bearer_token_file"),
        ("proxy_url", "proxy_from_environment"),
    )
    basic_auth: BasicAuth | None = None
    authorization: Authorization | None = None
    oauth2: Any = None
    bearer_token: SecretStr | None = None
    bearer_token_file: str | None = None
    tls_config: TlsConfig = Field(default_factory=TlsConfig)
    follow_redirects: bool = True
    enable_http2: bool = Field(True, description="HTTP/1.1 is spoken, whatever it says")
    proxy_url: SecretStr | None = None
    no_proxy: str | None = None
    proxy_from_environment: bool = False
    proxy_connect_header: dict[str, tuple[SecretStr, ...]] = Field(default_factory=dict)
    http_headers: dict[str, HeaderValues] = Field(default_factory=dict)

    @field_validator("oauth2", mode="before")
    @classmethod
    def _no_oauth2(cls, given: object) -> None:
        if given is not None:
            remedy = "have a token kept fresh in a file, and name that as authorization.credentials_file"
            raise ValueError(f"is not supported; {remedy}")

    @field_validator("http_headers", "proxy_connect_header", mode="before")
    @classmethod
    def _sendable_headers(cls, given: object, info: ValidationInfo) -> object:
        for name in map(str, given) if isinstance(given, Mapping) else ():
            if not _TOKEN.fullmatch(name):
                raise ValueError("a key is not the name of a header; write the name alone, like X-Scope-OrgID")
            if info.field_name == "http_headers" and _RESERVED_HEADER.fullmatch(name):
                raise ValueError(f"{name} cannot be set; use basic_auth or authorization for credentials")
        return given

    @model_validator(mode="after")
    def _has_a_proxy(self) -> HttpConfig:
        if self.no_proxy is not None and self.proxy_url is None:
            raise ValueError("no_proxy is for proxy_url; add that, or leave it out (NO_PROXY is the environment's)")
        if self.proxy_connect_header and self.proxy_url is None and not self.proxy_from_environment:
            raise ValueError("proxy_connect_header needs proxy_url or proxy_from_environment; add one")
        return self


def load_http_config(path: Path) -> HttpConfig:
    """Read and validate the file; UsageError without any value in its message."""
    try:
        return HttpConfig.model_validate(load_yaml(path))
    except ValidationError as error:
        message = validation_message(error, HttpConfig, str(path))
    except UsageError as error:
        message = str(error)
    raise UsageError(message)  # outside of the blocks above: what they caught shows the line, and a secret in it


def split_url(url: str) -> SplitResult | None:
    """The parts of an HTTP URL; None when it is none."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is no number, or above 65535; a bracket that is not closed
        return None
    return parts if usable else None
