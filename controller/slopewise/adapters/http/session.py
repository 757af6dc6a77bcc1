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
        self._follows = access.follow_redirects
        self.trust_env = False  # HTTP_PROXY counts where the http_config says so; ~/.netrc is for another purpose
        self.max_redirects = MAX_REDIRECTS
        self.headers["User-Agent"] = f"slopewise/{__version__}"
        self.headers.update(access.headers)
        if access.proxy is not None:
            self.proxies = {"http": access.proxy.url, "https": access.proxy.url}

    def get_redirect_target(self, response: requests.Response) -> str | None:
        """Where a redirect leads, on the same host; RedirectedError for another one, or where none is followed."""
        target = super().get_redirect_target(response)
        if target is None:
            return None
        absolute = urljoin(response.url, target)
        if not self._follows or _origin(absolute) != self._origin:
            raise RedirectedError(without_user(urlsplit(absolute)._replace(query="", fragment="")))
        return target


class AccessAdapter(HTTPAdapter):
    """Makes the connections: with the context of the `HttpAccess`, one try each, and ended in time."""

    def __init__(self, access: HttpAccess) -> None:
        self._access = access
        if access.tls is not None and access.tls.verify_mode == ssl.CERT_NONE:  # reported once, as a caution
            urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
        # With read=0 a timeout would be reported as "too many retries".
        super().__init__(max_retries=Retry(0, read=False))

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **more: Any) -> None:  # noqa: FBT001, FBT002
        """As requests does, with its signature."""
        super().init_poolmanager(connections, maxsize, block, **more, **self._tls())
        self.poolmanager.pool_classes_by_scheme = dict(BOUNDED_POOLS)

    def proxy_manager_for(self, proxy: str, **more: Any) -> urllib3.ProxyManager:
        """As requests does; a proxy that is reached over TLS itself is trusted like the server."""
        if proxy not in self.proxy_manager:
            more |= {**self._tls(), "proxy_ssl_context": self._access.tls}
        manager: urllib3.ProxyManager = super().proxy_manager_for(proxy, **more)
        manager.pool_classes_by_scheme = dict(BOUNDED_POOLS)
        return manager

    def proxy_headers(self, proxy: str) -> dict[str, str]:
        """What the proxy alone is sent."""
        return {} if self._access.proxy is None else dict(self._access.proxy.headers)

    def build_connection_pool_key_attributes(
        self, request: requests.PreparedRequest, verify: Any, cert: Any = None
    ) -> tuple[Any, Any]:
        """Only the host: requests would add Mozilla's authorities to a context that trusts others."""
        host, _ = super().build_connection_pool_key_attributes(request, verify, cert)
        return host, {}

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Nothing: the context does it."""

    def _tls(self) -> dict[str, Any]:
        if self._access.tls is None:
            return {}
        return {"ssl_context": self._access.tls, "server_hostname": self._access.server_name}


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
