"""What an http_config comes to: what is sent, whom it trusts, through which proxy; again when a file has changed."""

from __future__ import annotations

import base64
import os
import ssl
import traceback
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from support.certificates import Authority

from slopewise.adapters.http.access import HttpAccess, read_access
from slopewise.adapters.http.config import Endpoint
from slopewise.errors import UsageError

SECRET = "hünter 2"
URL = "https://prometheus.example.org/prom"
TOKEN = "authorization: {credentials: x}"


class Folder:
    """An http_config and the files beside it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = path / "http.yaml"

    def write(self, content: str, **files: str) -> HttpAccess:
        """Read the configuration; the name of a file is written with _ for its dot."""
        self.config.write_text(content, encoding="utf-8")
        for name, text in files.items():
            (self.path / name).write_text(text, encoding="utf-8")
        return self.read()

    def read(self, url: str = URL) -> HttpAccess:
        return read_access(Endpoint(url, self.config))

    def refusal(self, content: str, **files: str) -> str:
        """The sentence; the secret is nowhere in what is raised."""
        with pytest.raises(UsageError) as caught:
            self.write(content, **files)
        assert SECRET not in "".join(traceback.format_exception(caught.value))
        return str(caught.value)


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


def basic(user: str, password: str) -> str:
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@pytest.mark.parametrize(
    ("content", "sent"),
    [
        ("basic_auth: {username: me, password_file: p}", basic("me", SECRET)),
        (f"basic_auth: {{username: you, password: {SECRET}}}", basic("you", SECRET)),
        ("basic_auth: {username: me}", basic("me", "")),
        ("authorization: {credentials_file: token}", "Bearer abc"),
        ("authorization: {type: Token, credentials: abc}", "Token abc"),
    ],
)
def test_who_asks_is_in_one_header(folder: Folder, content: str, sent: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")  # files are looked for beside the http_config
    access = folder.write(content, p=f"{SECRET}\n", token=" abc\n")
    assert access.headers == {"Authorization": sent}


def test_without_an_http_config_nothing_is_sent() -> None:
    access = read_access(Endpoint(URL))
    assert (access.headers, access.proxy, access.credentials, access.is_current()) == ({}, None, None, True)


def test_the_values_of_a_further_header_are_one_list(folder: Folder) -> None:
    access = folder.write("http_headers: {X-Scope-OrgID: {values: [a, b], secrets: [c], files: [d]}}", d="d\n")
    assert access.headers == {"X-Scope-OrgID": "a, b, c, d"}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("authorization: {credentials_file: gone}", "credentials_file: {}/gone cannot be read (No such file"),
        ("authorization: {credentials_file: empty}", "credentials_file: {}/empty is empty; write the secret into it."),
        ("authorization: {credentials_file: lines}", "credentials_file: holds more than one line, or control"),
        ("authorization: {credentials_file: euro}", "credentials: holds characters that no header may"),
        ("authorization: {credentials_file: pipe}", "credentials_file: {}/pipe cannot be read (it is not a regular"),
        ("authorization: {credentials_file: large}", "credentials_file: {}/large cannot be read (it has more than 1"),
        ("basic_auth: {username: 'a:b'}", "basic_auth: the user's name holds a colon or a control character, which"),
        ('http_headers: {X-A: {values: ["a\\nb"]}}', "http_headers.X-A: holds more than one line, or control char"),
        ("proxy_url: me:{secret}@proxy", "proxy_url: is not the URL of an HTTP proxy; write it like http://proxy."),
        ("proxy_url: socks5://me:{secret}@proxy", "proxy_url: is not the URL of an HTTP proxy; write it"),
        ("tls_config: {ca_file: lines}", "tls_config.ca_file: holds no certificates; write those of the authority"),
        ("tls_config: {cert_file: lines, key_file: lines}", "the client certificate and its key cannot be used; wr"),
    ],
)
def test_a_file_that_cannot_be_used_is_reported(folder: Folder, content: str, message: str) -> None:
    os.mkfifo(folder.path / "pipe")
    (folder.path / "large").write_bytes(b"x" * (1024 * 1024 + 1))
    reported = folder.refusal(
        content.replace("{secret}", SECRET), empty="\n", lines=f"{SECRET}\nmore", euro=f"{SECRET}€"
    )
    assert reported.startswith(f"{folder.config}: ")
    assert message.format(folder.path) in reported


def test_a_file_that_changes_goes_or_comes_is_seen(folder: Folder) -> None:
    first = folder.write("authorization: {credentials_file: token}", token="first")
    assert first.is_current()

    (folder.path / "token").write_text("other")
    second = folder.read()
    (folder.path / "token").unlink()

    assert not first.is_current()
    assert second.headers["Authorization"] == "Bearer other"
    assert not second.is_current()
    third = folder.write("authorization: {credentials: first}")
    folder.config.write_text("authorization: {credentials: second!}")
    assert not third.is_current()


def test_a_volume_that_is_swapped_by_its_link_is_seen(folder: Folder) -> None:
    """As kubelets write Secrets: a new folder, to which a link is turned."""
    for name in ("one", "two"):
        (folder.path / name).mkdir()
        (folder.path / name / "token").write_text(name)
        os.utime(folder.path / name / "token", (0, 0))
    (folder.path / "..data").symlink_to("one")
    (folder.path / "token").symlink_to("..data/token")
    access = folder.write("authorization: {credentials_file: token}")

    (folder.path / "..new").symlink_to("two")
    (folder.path / "..new").rename(folder.path / "..data")

    assert not access.is_current()
    assert folder.read().headers["Authorization"] == "Bearer two"


def test_secrets_are_in_no_repr(folder: Folder) -> None:
    access = folder.write(
        f"basic_auth: {{username: me, password: {SECRET}}}\n"
        f"http_headers: {{X-Key: {{secrets: [other-secret]}}}}\n"
        f"proxy_url: http://me:proxy-secret@proxy.example.org:3128"
    )
    assert not [each for each in (SECRET, "-secret", basic("me", SECRET)[6:]) if each in f"{access!r} {access}"]


@pytest.mark.parametrize(
    "quoted", [SECRET, quote(SECRET), quote(SECRET).replace("%20", "+"), '"h\\u00fcnter 2"', basic("me", SECRET)]
)
def test_a_secret_is_masked_however_it_is_quoted(folder: Folder, quoted: str) -> None:
    mask = folder.write(f"basic_auth: {{username: me, password: {SECRET}}}").mask
    shown = mask(f"the request said {quoted}, which is wrong")
    assert "<secret>" in shown
    assert not [part for part in ("nter", basic("me", SECRET)[6:]) if part in shown]


# --- the proxy -------------------------------------------------------------------------------------------------


def test_the_user_of_a_proxy_is_in_a_header_and_not_in_its_url(folder: Folder) -> None:
    proxy = folder.write("proxy_url: http://me:p%40ss@proxy.example.org:3128").proxy
    assert proxy is not None
    assert proxy.url == "http://proxy.example.org:3128"
    assert proxy.headers == {"Proxy-Authorization": basic("me", "p@ss")}


@pytest.mark.parametrize(
    ("url", "no_proxy", "passed_by"),
    [
        (URL, "example.org", True),
        (URL, ".example.org", True),
        (URL, "*.example.org", True),
        (URL, "other.org, PROMETHEUS.example.org:443", True),
        (URL, "prometheus.example.org:444", False),
        (URL, "ample.org", False),
        (URL, "*", True),
        ("http://192.0.2.7:9090", "192.0.2.0/24", True),
        ("http://[2001:db8::1]:9090", "2001:db8::/32", True),
        ("http://127.0.0.1:9090", "other.org", True),
    ],
)
def test_a_proxy_is_passed_by_where_no_proxy_says_so(folder: Folder, url: str, no_proxy: str, passed_by: bool) -> None:
    folder.config.write_text(f"proxy_url: http://proxy:3128\nno_proxy: '{no_proxy}'")
    assert (folder.read(url).proxy is None) is passed_by


def test_the_environments_proxy_counts_only_where_asked_for(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:proxy-secret@proxy.example.org:3128")
    monkeypatch.setenv("NO_PROXY", "example.com")
    assert folder.write("tls_config: {}").proxy is None

    proxy = folder.write("proxy_from_environment: true").proxy
    assert proxy is not None
    assert proxy.url == "http://proxy.example.org:3128"
    assert folder.read("https://prometheus.example.com").proxy is None
    assert folder.read("http://prometheus.example.org").proxy is None, "HTTP_PROXY is not set"

    monkeypatch.setenv("HTTPS_PROXY", "socks5://me:proxy-secret@proxy")
    with pytest.raises(UsageError, match="HTTPS_PROXY: is not the URL of an HTTP proxy") as caught:
        folder.read()
    assert "proxy-secret" not in str(caught.value)
    assert folder.read("https://prometheus.example.com").proxy is None, "what is not used need not be an HTTP proxy"


# --- TLS -------------------------------------------------------------------------------------------------------


def test_a_context_trusts_the_named_authority_alone(folder: Folder, authority: Authority) -> None:
    context = folder.write(f"tls_config: {{ca_file: {authority.certificate}}}").tls
    assert context is not None
    authorities: list[dict[str, Any]] = context.get_ca_certs()
    assert [dict(pair[0] for pair in each["subject"])["commonName"] for each in authorities] == ["authority"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_key_with_a_passphrase_is_refused_and_not_asked_for(folder: Folder, authority: Authority) -> None:
    pair = authority.sign("protected", passphrase="hunter22")
    reported = folder.refusal(f"tls_config: {{cert_file: {pair.certificate}, key_file: {pair.key}}}")
    assert "the key without a passphrase." in reported


@pytest.mark.parametrize(
    ("url", "content", "caution"),
    [
        (URL, "tls_config: {insecure_skip_verify: true}", "The certificate of https://prometheus.example.org is not"),
        ("http://prometheus.example.org", TOKEN, "Credentials go to http://prometheus.example.org in"),
        ("http://prometheus.example.org", "http_headers: {X-Scope-OrgID: {values: [a]}}", None),
        ("http://127.0.0.1:9090", TOKEN, None),
        (URL, TOKEN, None),
    ],
)
def test_what_is_careless_is_said(folder: Folder, url: str, content: str, caution: str | None) -> None:
    folder.config.write_text(content)
    cautions = folder.read(url).cautions
    assert [each[: len(caution or "")] for each in cautions] == ([] if caution is None else [caution])
