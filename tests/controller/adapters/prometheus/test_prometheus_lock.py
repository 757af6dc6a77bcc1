"""A Prometheus that asks for something gets it, and no other does; what does not fit is a sentence without secrets.

The servers are in this process. `tests/queriers` and `tests/cluster/end_to_end` ask real ones.
"""

from __future__ import annotations

import base64
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import pytest
import requests
from support.certificates import LOOPBACK, Authority, Pair
from support.connect_proxy import ConnectProxy
from support.fake_prometheus import FakePrometheus, answer, text, vector
from support.loopback import send
from urllib3.exceptions import InsecureRequestWarning

from slopewise.adapters.http.access import read_access
from slopewise.adapters.http.config import Endpoint
from slopewise.adapters.prometheus.client import PrometheusHttp
from slopewise.adapters.prometheus.failures import Failures
from slopewise.errors import ObservationError

NOW = 1_700_000_000.0
SECRET = "hunter2-and-more"
TOKEN = f"authorization: {{credentials: {SECRET}}}"


class Asker:
    """Asks with an http_config that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.config = folder / "http.yaml"
        self.caught: ObservationError | None = None

    def writes(self, content: str) -> Asker:
        self.config.write_text(content)
        return self

    @contextmanager
    def of(self, url: str, timeout_seconds: float = 5.0) -> Iterator[PrometheusHttp]:
        """A client; without a configuration where none was written."""
        http = PrometheusHttp(Endpoint(url, self.config if self.config.exists() else None), timeout_seconds)
        try:
            yield http
        finally:
            http.close()

    def asks(self, url: str, timeout_seconds: float = 5.0) -> None:
        """One query that is answered."""
        with self.of(url, timeout_seconds) as http:
            ask(http)

    def is_reported(self, url: str, timeout_seconds: float = 5.0) -> str:
        """The sentence of a query that fails; the secret is nowhere in what is raised."""
        with self.of(url, timeout_seconds) as http:
            return failure(http)


def ask(http: PrometheusHttp) -> None:
    http.begin()
    http.ask("up", NOW)


def failure(http: PrometheusHttp) -> str:
    with pytest.raises(ObservationError) as caught:
        ask(http)
    raised = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(vars(http))
    assert SECRET not in raised
    assert base64.b64encode(f"me:{SECRET}".encode()).decode() not in raised
    assert str(caught.value).endswith("; nothing is changed meanwhile.")
    return str(caught.value)


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path)


@pytest.fixture
def elsewhere() -> Iterator[FakePrometheus]:
    server = FakePrometheus()
    yield server
    server.close()


# --- credentials -----------------------------------------------------------------------------------------------


def test_credentials_and_headers_go_out_with_every_query(asker: Asker, fake: FakePrometheus) -> None:
    asker.writes(f"{TOKEN}\nhttp_headers: {{X-Scope-OrgID: {{values: [team-a]}}}}")
    with asker.of(fake.url) as http:
        ask(http)
        http.ask_range("up", NOW, NOW + 10, 1)
    assert [each["authorization"] for each in fake.headers] == [f"Bearer {SECRET}"] * 2
    assert [each["x-scope-orgid"] for each in fake.headers] == ["team-a"] * 2
    assert all(each["user-agent"].startswith("slopewise/") for each in fake.headers)


def test_what_the_environment_says_of_proxies_and_passwords_does_not_count(
    asker: Asker, fake: FakePrometheus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    asker.asks(fake.url)
    assert "authorization" not in fake.headers[0]


@pytest.mark.parametrize("path", ["/prom/", "/a/b"])
def test_a_path_in_the_url_is_kept(asker: Asker, fake: FakePrometheus, path: str) -> None:
    asker.asks(fake.url + path)
    assert fake.paths == [f"{path.rstrip('/')}/api/v1/query"]


def test_a_token_that_rotates_is_sent_from_the_next_reading_on(asker: Asker, fake: FakePrometheus) -> None:
    token = asker.config.with_name("token")
    token.write_text("first")
    with asker.writes("authorization: {credentials_file: token}").of(fake.url) as http:
        ask(http)
        token.write_text("the second")
        ask(http)
        token.write_text("")
        message = failure(http)
        token.write_text("third")
        ask(http)
    assert [each["authorization"] for each in fake.headers] == ["Bearer first", "Bearer the second", "Bearer third"]
    assert f"authorization.credentials_file: {token} is empty; write the secret into it; nothing" in message


@pytest.mark.parametrize(
    ("config", "status", "body", "reported"),
    [
        (None, 401, b"", "answered 401; write what it asks for as basic_auth or authorization into a file, and add --"),
        (None, 401, b"no org id", "answered 401 (no org id); name the tenant as http_headers.X-Scope-OrgID in the f"),
        (TOKEN, 401, b"no\nthanks", "answered 401 (no thanks); correct authorization in {}; nothing is changed me"),
        (TOKEN, 403, b"", "answered 403; give this account the right to query, or use another account; nothing is"),
        (TOKEN, 404, b"404 page not found", "answered 404 (404 page not found); write its URL with the path under"),
        (None, 414, b"", "answered 414; have the proxy before it let URLs of 16 KiB through; nothing is changed mea"),
        (None, 429, b"slow down", "answered 429 (slow down); raise its limit, or the policy's intervalSeconds; noth"),
        (None, 503, b'{"status": "error", "error": "loading"}', "answered 503 (loading); see its log; nothing is ch"),
    ],
)
def test_a_refusal_says_what_to_do(
    asker: Asker, fake: FakePrometheus, config: str | None, status: int, body: bytes, reported: str
) -> None:
    if config is not None:
        asker.writes(config)
    fake.respond = text(body, status)
    assert f"Prometheus at {fake.url} {reported.format(asker.config)}" in asker.is_reported(fake.url)


# --- redirects -------------------------------------------------------------------------------------------------


def redirect(target: str, then: Callable[[], None] = lambda: None) -> Callable[[BaseHTTPRequestHandler], None]:
    def respond(handler: BaseHTTPRequestHandler) -> None:
        then()
        send(handler, 302, b"", {"Location": target})

    return respond


def test_a_redirect_elsewhere_gets_nothing(asker: Asker, fake: FakePrometheus, elsewhere: FakePrometheus) -> None:
    fake.respond = redirect(f"{elsewhere.url}/login?state={SECRET}#x")
    message = asker.writes(f"{TOKEN}\nhttp_headers: {{X-Key: {{secrets: [{SECRET}]}}}}").is_reported(fake.url)
    assert f"redirects to {elsewhere.url}/login, where nothing is asked; write the URL that answers;" in message
    assert elsewhere.asked == []


def test_a_redirect_on_the_same_host_is_followed_with_credentials(asker: Asker, fake: FakePrometheus) -> None:
    fake.respond = redirect("/prometheus/api/v1/query", lambda: setattr(fake, "respond", answer(vector())))
    asker.writes(TOKEN).asks(fake.url)
    assert fake.paths == ["/api/v1/query", "/prometheus/api/v1/query"]
    assert [each["authorization"] for each in fake.headers] == [f"Bearer {SECRET}"] * 2


# --- proxies ---------------------------------------------------------------------------------------------------


@pytest.fixture
def proxy() -> Iterator[ConnectProxy]:
    password = base64.b64encode(f"me:{SECRET}".encode()).decode()
    server = ConnectProxy(asks_for=f"Basic {password}")
    yield server
    server.close()


def through(proxy: ConnectProxy, more: str = "") -> str:
    return f"proxy_url: http://me:{SECRET}@{proxy.address}\n{more}"


def test_a_proxy_is_asked_with_its_own_password(asker: Asker, fake: FakePrometheus, proxy: ConnectProxy) -> None:
    asker.writes(through(proxy)).asks(fake.url)
    assert proxy.requests[0][1].startswith(f"{fake.url}/api/v1/query?")
    assert len(fake.asked) == 1
    message = asker.writes(f"proxy_url: http://me:wrong@{proxy.address}").is_reported(fake.url)
    assert "answered 407; write its user and password into proxy_url in the file that --prometheus-config" in message
    assert len(fake.asked) == 1


def test_a_proxy_that_is_away_is_reported_without_its_password(asker: Asker) -> None:
    """Of a Prometheus whose port has the number 407, which is a proxy's refusal, in it."""
    message = asker.writes(f"proxy_url: http://me:{SECRET}@127.0.0.1:1").is_reported("http://127.0.0.1:40737")
    assert "cannot be reached through the proxy http://127.0.0.1:1 (connection refused); see whether that" in message


# --- TLS -------------------------------------------------------------------------------------------------------


class Certificates(NamedTuple):
    """What the servers and clients of this module show."""

    authority: Authority
    other: Authority
    server: Pair
    expired: Pair
    elsewhere: Pair
    client: Pair
    stranger: Pair


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    authority, other = Authority(folder), Authority(folder, "other")
    return Certificates(
        authority,
        other,
        authority.sign("server", *LOOPBACK),
        authority.sign("expired", *LOOPBACK, days=-1),
        authority.sign("elsewhere", "DNS:prometheus.example.org"),
        authority.sign("client"),
        other.sign("stranger"),
    )


def context(pair: Pair, clients_of: Authority | None = None) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(pair.certificate, pair.key)
    if clients_of is not None:
        made.load_verify_locations(clients_of.certificate)
        made.verify_mode = ssl.CERT_REQUIRED
    return made


@contextmanager
def secure(pair: Pair, clients_of: Authority | None = None) -> Iterator[FakePrometheus]:
    server = FakePrometheus(context(pair, clients_of))
    try:
        yield server
    finally:
        server.close()


def trusting(authority: Authority, more: str = "") -> str:
    return f"tls_config:\n  ca_file: {authority.certificate}\n{more}"


def test_ones_own_authority_is_trusted(
    asker: Asker, certificates: Certificates, recwarn: pytest.WarningsRecorder
) -> None:
    with secure(certificates.server) as fake:
        asker.writes(trusting(certificates.authority)).asks(fake.url)
        asker.writes(trusting(certificates.other))
        untrusted = asker.is_reported(fake.url)
        asker.config.unlink()
        unnamed = asker.is_reported(fake.url)
        asker.writes(f"{TOKEN}\ntls_config: {{insecure_skip_verify: true}}").asks(fake.url)
    assert "cannot be reached over TLS (its certificate is from an authority that is not trusted here); n" in untrusted
    assert "as tls_config.ca_file in the file that --prometheus-config names; nothing is changed" in unnamed
    assert len(fake.asked) == 2
    warned = [each for each in recwarn.list if issubclass(each.category, InsecureRequestWarning)]
    assert warned == [], "urllib3 would warn into a log that is JSON"


def test_the_system_has_authorities(asker: Asker, certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.authority.certificate))
    with secure(certificates.server) as fake:
        asker.asks(fake.url)
        monkeypatch.setenv("SSL_CERT_FILE", "/nowhere")
        monkeypatch.setenv("SSL_CERT_DIR", "/nowhere")
        of_mozilla = read_access(Endpoint(fake.url)).tls
        asker.is_reported(fake.url)
    assert of_mozilla is not None
    assert len(of_mozilla.get_ca_certs()) > 50, "a system without any has Mozilla's"


def test_a_certificate_of_tomorrow_is_not_called_one_of_another_authority() -> None:
    """OpenSSL says the same of both, and the reason after it."""
    error = requests.exceptions.SSLError("[SSL: CERTIFICATE_VERIFY_FAILED] verify failed: certificate is not yet valid")
    endpoint = Endpoint("https://prometheus.example.org")
    assert "(its certificate is not valid yet)" in str(Failures(endpoint, read_access(endpoint), 5.0).of(error))


def test_a_certificate_for_another_host_is_taken_under_its_name(asker: Asker, certificates: Certificates) -> None:
    with secure(certificates.elsewhere) as fake:
        by_address = asker.writes(trusting(certificates.authority)).is_reported(fake.url)
        by_name = asker.is_reported(fake.url.replace("127.0.0.1", "localhost"))
        asker.writes(trusting(certificates.authority, "  server_name: prometheus.example.org")).asks(fake.url)
    assert "(its certificate is for another address); write the name that the certificate is for" in by_address
    assert "(its certificate is for another name); write the name that the certificate is for" in by_name
    assert len(fake.asked) == 1
    with secure(certificates.expired) as fake:
        expired = asker.writes(trusting(certificates.authority)).is_reported(fake.url)
    assert "over TLS (its certificate has expired); renew that, or set this machine's clock; nothing is" in expired


def test_a_client_certificate_is_shown_where_it_is_asked_for(asker: Asker, certificates: Certificates) -> None:
    def showing(pair: Pair) -> str:
        return trusting(certificates.authority, f"  cert_file: {pair.certificate}\n  key_file: {pair.key}")

    with secure(certificates.server, clients_of=certificates.authority) as fake:
        without = asker.writes(trusting(certificates.authority)).is_reported(fake.url)
        unknown = asker.writes(showing(certificates.stranger)).is_reported(fake.url)
        asker.writes(showing(certificates.client)).asks(fake.url)
    assert "over TLS (it asks for a client certificate); name one that it accepts as tls_config.cert_file" in without
    assert "over TLS (it does not trust the authority of our client certificate); name one that it" in unknown
    assert len(fake.asked) == 1


def test_a_certificate_that_is_renewed_is_used_for_new_connections(asker: Asker, certificates: Certificates) -> None:
    trusted = asker.config.with_name("ca.crt")
    trusted.write_bytes(certificates.other.certificate.read_bytes())
    asker.writes("tls_config: {ca_file: ca.crt}")
    with secure(certificates.server) as fake, asker.of(fake.url) as http:
        assert "not trusted here" in failure(http)
        trusted.write_bytes(certificates.authority.certificate.read_bytes())
        ask(http)
        trusted.write_bytes(certificates.other.certificate.read_bytes())
        assert "not trusted here" in failure(http), "the old connection is still in use"


def test_the_wrong_scheme_is_reported(asker: Asker, fake: FakePrometheus, certificates: Certificates) -> None:
    plain = asker.is_reported(fake.url.replace("http:", "https:"))
    assert "(what answers there speaks no TLS); write http:// into its URL; nothing" in plain
    for body in (b"Client sent an HTTP request to an HTTPS server.\n", b""):
        fake.respond = text(body, 400)
        assert "; write https:// into its URL if it speaks TLS; nothing" in asker.is_reported(fake.url)


def test_a_proxy_tunnels_to_a_server_with_tls(asker: Asker, proxy: ConnectProxy, certificates: Certificates) -> None:
    with secure(certificates.server) as fake:
        asker.writes(through(proxy, f"{TOKEN}\n{trusting(certificates.authority)}")).asks(fake.url)
        refused = asker.writes(f"proxy_url: http://{proxy.address}").is_reported(fake.url)
    assert proxy.requests[0] == ("CONNECT", fake.url.removeprefix("https://"))
    assert "authorization" not in proxy.headers[0], "the proxy is none of the server's business"
    assert fake.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert "proxy-authorization" not in fake.headers[0]
    assert "through the proxy" in refused
    assert "write its user and password into proxy_url in the file that --prometheus-config names" in refused


# --- what hangs ------------------------------------------------------------------------------------------------


class Hanging:
    """Takes connections, and sends `drip` a byte at a time for ever."""

    def __init__(self, drip: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = threading.Event()
        self._drip = drip
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        self._listener.settimeout(0.02)
        taken: list[socket.socket] = []
        while not self._ended.wait(0.02):
            with suppress(TimeoutError):
                taken.append(self._listener.accept()[0])
            for connection in taken:
                try:
                    connection.send(self._drip[:1])
                except OSError:
                    continue
        for connection in taken:
            connection.close()

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._listener.close()


@pytest.fixture(params=[b"", b"x"], ids=["silent", "dripping"])
def hanging(request: pytest.FixtureRequest) -> Iterator[Hanging]:
    server = Hanging(request.param)
    yield server
    server.close()


def test_a_server_or_a_proxy_that_hangs_is_given_up_in_time(asker: Asker, hanging: Hanging) -> None:
    message = asker.is_reported(f"https://127.0.0.1:{hanging.port}", timeout_seconds=0.4)
    assert ("did not answer within 0.4 s" in message) or ("speaks no TLS" in message)
    asker.writes(f"proxy_url: http://127.0.0.1:{hanging.port}")
    message = asker.is_reported("https://prometheus.example.org", timeout_seconds=0.4)
    assert ("did not answer within 0.4 s" in message) or ("through the proxy" in message)
