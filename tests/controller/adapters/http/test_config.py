"""An http_config is what Prometheus' users know; a mistake in one is a sentence that repeats none of its values."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from slopewise.adapters.http.config import load_http_config
from slopewise.errors import UsageError

SECRET = "hunter2"

WHOLE = """
basic_auth: {username: me, password: hunter2}
tls_config:
  ca_file: ca.crt
  cert_file: client.crt
  key_file: client.key
  server_name: prometheus.example.org
  insecure_skip_verify: false
http_headers:
  X-Scope-OrgID: {values: [team-a]}
  X-Api-Key: {secrets: [hunter2], files: [key]}
proxy_url: http://me:hunter2@proxy.example.org:3128
no_proxy: example.com, 192.0.2.0/24
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "http.yaml"


def refusal(file: Path, content: str) -> str:
    """The sentence for a document that is refused; the secret is nowhere in what is raised."""
    file.write_text(content)
    with pytest.raises(UsageError) as caught:
        load_http_config(file)
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert message.endswith(".")
    return message.removeprefix(f"{file}: ")


def test_every_part_is_understood(file: Path) -> None:
    file.write_text(WHOLE)
    config = load_http_config(file)

    assert config.basic_auth is not None
    assert config.basic_auth.username == "me"
    assert config.tls_config.server_name == "prometheus.example.org"
    assert config.http_headers["X-Scope-OrgID"].values == ("team-a",)
    assert SECRET not in f"{config!r} {config}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must be a mapping of keys to values, not NoneType."),
        ("basic_auth: hunter2", "basic_auth: must be a mapping of keys to values, not str."),
        ("basic_auth: {hunter2}", "basic_auth: holds an unknown key; it may hold password, password_file, username."),
        ("basic_auth: {usernme: me}", "basic_auth: usernme is an unknown key; write username."),
        ("basic_auth: {password: hunter2}", "basic_auth.username: is required; add it."),
        ("basic_auth: {username: me, password: hunter2, password_file: p}", "password and password_file exclude each"),
        ("basic_auth: {username: me}\nauthorization: {credentials: hunter2}", "basic_auth and authorization exclude"),
        ("authorization: {}", "authorization: names no credentials; add credentials_file or credentials."),
        ("authorization: {type: basic, credentials: hunter2}", "authorization: type cannot be Basic; use basic_auth"),
        ("authorization: {type: Bearer hunter2, credentials: x}", "type is not a scheme of authorization; write"),
        ("tls_config: {cert_file: a}", "tls_config: a client certificate needs both cert_file and key_file; add key_f"),
        ("http_headers: {X-Key: {secrets: hunter2}}", "http_headers.X-Key.secrets: must be a list."),
        ("http_headers: {X-Key: {}}", "http_headers.X-Key: has no value; add values, secrets or files."),
        ("http_headers: {'X-Key: hunter2': {values: [a]}}", "http_headers: a key is not the name of a header; write "),
        ("http_headers: {authorization: {values: [hunter2]}}", "authorization cannot be set; use basic_auth or auth"),
        ("proxy_url: http://p\nproxy_from_environment: true", "proxy_url and proxy_from_environment exclude"),
        ("no_proxy: example.org", "no_proxy is for proxy_url; add that, or leave it out (NO_PROXY is the"),
        ("bearer_token: hunter2", "holds an unknown key; it may hold authorization, basic_auth, http_headers, no_pr"),
        ("basic_auth: 'hunter2", "line 1 is not valid YAML; correct its syntax."),
    ],
)
def test_a_mistake_is_one_sentence_without_what_was_written(file: Path, content: str, message: str) -> None:
    assert message in refusal(file, content)


def test_a_file_that_is_not_there_is_reported(file: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot be read \(No such file or directory\)"):
        load_http_config(file)


def test_of_further_headers_only_those_are_refused_that_prometheus_refuses(file: Path) -> None:
    names = ["Content-Language", "X-Amz-Trace", "X-Prometheus-Tenant"]
    file.write_text(f"http_headers: {{{', '.join(f'{name}: {{values: [a]}}' for name in names)}}}")
    assert list(load_http_config(file).http_headers) == names
    for name in ("Content-Type", "X-AMZ-Date", "Proxy-Authorization", "X-Prometheus-Remote-Read-Version"):
        assert f"{name} cannot be set" in refusal(file, f"http_headers: {{{name}: {{values: [a]}}}}")
