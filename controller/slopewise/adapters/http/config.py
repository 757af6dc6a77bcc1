"""Validates the `http_config` file of an HTTP client: credentials, TLS, headers and proxy.

The keys are Prometheus' own: https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config;
keys that have two spellings have one here. `http/access.py` reads the files that they name. An error message repeats
no value, because any value may be a secret in the wrong place.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

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

    exclusive = (("password", "password_file"),)
    username: str
    password: SecretStr | None = None
    password_file: str | None = None


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

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> TlsConfig:
        if (self.cert_file is None) != (self.key_file is None):
            missing = "cert_file" if self.cert_file is None else "key_file"
            raise ValueError(f"a client certificate needs both cert_file and key_file; add {missing}")
        return self


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

    exclusive = (("basic_auth", "authorization"), ("proxy_url", "proxy_from_environment"))
    basic_auth: BasicAuth | None = None
    authorization: Authorization | None = None
    tls_config: TlsConfig = Field(default_factory=TlsConfig)
    proxy_url: SecretStr | None = None
    no_proxy: str | None = None
    proxy_from_environment: bool = False
    http_headers: dict[str, HeaderValues] = Field(default_factory=dict)

    @field_validator("http_headers", mode="before")
    @classmethod
    def _sendable_headers(cls, given: object) -> object:
        for name in map(str, given) if isinstance(given, Mapping) else ():
            if not _TOKEN.fullmatch(name):
                raise ValueError("a key is not the name of a header; write the name alone, like X-Scope-OrgID")
            if _RESERVED_HEADER.fullmatch(name):
                raise ValueError(f"{name} cannot be set; use basic_auth or authorization for credentials")
        return given

    @model_validator(mode="after")
    def _has_a_proxy(self) -> HttpConfig:
        if self.no_proxy is not None and self.proxy_url is None:
            raise ValueError("no_proxy is for proxy_url; add that, or leave it out (NO_PROXY is the environment's)")
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
