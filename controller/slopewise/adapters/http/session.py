"""A requests session for one host, with the credentials, TLS and proxy of an `http_config` and a deadline.

`http/access.py` reads the configuration; `prometheus/client.py` sends with what is made here. requests would strip
`Authorization` where it follows a redirect to another host, but would send all other headers and the client certificate
there; so redirects are followed on the same host only, and other redirects are errors.
"""

from __future__ import annotations

import ssl
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from slopewise import __version__
from slopewise.adapters.http.access import HttpAccess, without_user
from slopewise.adapters.http.answers import BOUNDED_POOLS

MAX_REDIRECTS = 5


class RedirectedError(requests.RequestException):
    """A redirect that is not followed. `target` is its URL without user, query and fragment."""

    def __init__(self, target: str) -> None:
        super().__init__(f"redirected to {target}")
        self.target = target


class OneHostSession(requests.Session):
    """Sends with the headers, TLS and proxy of an `HttpAccess`. Nothing of the environment's applies."""

    def __init__(self, url: str, access: HttpAccess) -> None:
        """`url` is the server's."""
        super().__init__()
        self._origin = _origin(url)
        self.trust_env = False  # HTTP_PROXY counts where the http_config says so; ~/.netrc is for another purpose
        self.max_redirects = MAX_REDIRECTS
        self.headers["User-Agent"] = f"slopewise/{__version__}"
        self.headers.update(access.headers)
        if access.proxy is not None:
            self.proxies = {"http": access.proxy.url, "https": access.proxy.url}

    def get_redirect_target(self, response: requests.Response) -> str | None:
        """Where a redirect leads, on the same host; RedirectedError for another one."""
        target = super().get_redirect_target(response)
        if target is None:
            return None
        absolute = urljoin(response.url, target)
        if _origin(absolute) != self._origin:
            raise RedirectedError(without_user(urlsplit(absolute)._replace(query="", fragment="")))
        return target


class AccessAdapter(HTTPAdapter):
    """Makes the connections: with the context and the proxy of the `HttpAccess`, one try each, and ended in time."""

    def __init__(self, access: HttpAccess) -> None:
        self._access = access
        if access.tls is not None and access.tls.verify_mode == ssl.CERT_NONE:  # reported once, as a caution
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        # With read=0 a timeout would be reported as "too many retries".
        super().__init__(max_retries=Retry(0, read=False))

    def init_poolmanager(self, *_: Any, **__: Any) -> None:
        """One for all requests; a proxy that is reached over TLS itself is trusted like the server."""
        tls, proxy = self._access.tls, self._access.proxy
        more: dict[str, Any] = {} if tls is None else {"ssl_context": tls, "server_hostname": self._access.server_name}
        if proxy is None:
            self.poolmanager = urllib3.PoolManager(**more)
        else:
            self.poolmanager = urllib3.ProxyManager(
                proxy.url, proxy_headers=dict(proxy.headers), proxy_ssl_context=tls, **more
            )
        self.poolmanager.pool_classes_by_scheme = dict(BOUNDED_POOLS)

    def get_connection_with_tls_context(self, request: requests.PreparedRequest, *_: Any, **__: Any) -> Any:
        """Without what requests would add: Mozilla's authorities to a context that trusts others."""
        return self.poolmanager.connection_from_url((request.url or "").partition("?")[0])  # it checks each letter

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Nothing: the context does it."""


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
