"""Connects to the API server: configuration, credentials, and connections with bounded waits.

`client/client.py` sends its requests over a `Transport`. The configuration and the connections are the `kubernetes`
package's. This module adds one-line messages for mistakes in the environment, credentials that are read again after a
401, no repeated requests, and a bound on the time until a response's headers.
"""

from __future__ import annotations

import ipaddress
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import urllib3
import yaml
from kubernetes import config
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.incluster_config import SERVICE_HOST_ENV_NAME, SERVICE_TOKEN_FILENAME

from slopewise.adapters.http.answers import BOUNDED_POOLS
from slopewise.adapters.kube.client.errors import CredentialsError
from slopewise.errors import UsageError

KUBECONFIG_DEFAULT = "~/.kube/config"

RELOAD_SECONDS = 10.0
"""After a 401 the credentials are read again, but not more often than this: the account may lack rights."""

FRESH_SECONDS = 1.0
"""For so long a token is reused. Reading it runs the package's hook, which also searches the environment for proxies: a
third of a patch's cost, and a pass makes a hundred. The package keeps its own token for 60 s."""

_CONNECTIONS = 16
"""Open connections; six watches, the pass, the writer and the elector need about ten at once."""


class Transport:
    """Sends each request once. Safe from any thread."""

    def __init__(self, load: Callable[[], Configuration], *, reload_seconds: float = RELOAD_SECONDS) -> None:
        """`load` returns the configuration, now and after a 401; its first error is raised here."""
        self._load = load
        self._reload_seconds = reload_seconds
        self._lock = threading.Lock()
        self._loaded_at = 0.0
        self._credentials: Mapping[str, str] = {}
        self._fresh_until = 0.0
        self._use(load())

    @property
    def host(self) -> str:
        """The URL of the API server."""
        return str(self._configuration.host)

    def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: object,
        timeout: float | tuple[float, float],
    ) -> urllib3.HTTPResponse:
        """The response, with its body unread.

        Raises urllib3's errors, the package's ApiException for TLS, and CredentialsError.
        """
        with self._lock:  # the hook that refreshes a token writes to the configuration
            if time.monotonic() >= self._fresh_until:
                self._credentials = self._read_credentials()
                self._fresh_until = time.monotonic() + FRESH_SECONDS
            credentials, rest = self._credentials, self._rest
        url, all_headers = self.host + path, {**headers, **credentials}
        answer = rest.request(method, url, all_headers, body, _request_timeout=timeout)  # type: ignore[no-untyped-call]
        response: urllib3.HTTPResponse = answer.response
        return response

    def renew_credentials(self) -> None:
        """Read the configuration again: tokens in files rotate, and plugins issue new ones."""
        with self._lock:
            self._fresh_until = 0.0
            if time.monotonic() - self._loaded_at < self._reload_seconds:
                return
            with suppress(UsageError):  # half-written just now, say: what is in use stays
                self._use(self._load())
            self._loaded_at = time.monotonic()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._rest.close()

    def _read_credentials(self) -> Mapping[str, str]:
        try:
            token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        except Exception as error:  # files, plugins and identity providers fail in their own ways
            raise CredentialsError(f"no credentials could be had ({error})") from error
        return {"Authorization": token.strip()} if token else {}

    def _use(self, configuration: Configuration) -> None:
        configuration.retries = False  # urllib3 would send GET, PUT and DELETE up to four times
        configuration.connection_pool_maxsize = _CONNECTIONS
        rest = RESTClientObject(configuration)
        rest.pool_manager.pool_classes_by_scheme = dict(BOUNDED_POOLS)
        self._configuration, self._rest, self._loaded_at = configuration, rest, time.monotonic()
        self._fresh_until = 0.0


def load_configuration(kubeconfig: str | None, context: str | None) -> Configuration:
    """The configuration of the pod that this runs in, unless a kubeconfig is named, else the kubeconfig's.

    `kubeconfig` (else the variable KUBECONFIG, else `~/.kube/config`) may be several files joined by colons. Raises
    UsageError, in one line, when there is none or it cannot be used.
    """
    asked_for = kubeconfig or os.environ.get("KUBECONFIG")
    configuration = Configuration(host="")
    in_pod = SERVICE_HOST_ENV_NAME in os.environ and Path(SERVICE_TOKEN_FILENAME).exists()
    if in_pod and not asked_for and not context:
        _load(lambda: config.load_incluster_config(configuration), "The service account of this pod")  # type: ignore[no-untyped-call]
        configuration.proxy = None  # HTTPS_PROXY is for the outside; the API server is inside
        return configuration
    path = asked_for or KUBECONFIG_DEFAULT
    if not any(Path(each).expanduser().exists() for each in path.split(":") if each):
        raise UsageError(f"{path}: no such kubeconfig; write its path to --kubeconfig or KUBECONFIG, or run in a pod.")
    # Without writing renewed tokens back: the file is the user's.
    _load(lambda: config.load_kube_config(path, context, configuration, persist_config=False), path)  # type: ignore[no-untyped-call]
    if not configuration.host:
        raise UsageError(f"{path}: the cluster has no server; write its URL there, or choose another context.")
    _pass_by_proxy_on_loopback(configuration)
    return configuration


def _load(load: Callable[[], None], where: str) -> None:
    try:
        load()
    except (
        config.ConfigException,
        yaml.YAMLError,
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
    ) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(f"{where}: cannot be used to reach a cluster ({reason}); correct it.") from error


def _pass_by_proxy_on_loopback(configuration: Configuration) -> None:
    """Like kubectl: a proxy of the environment is not for loopback; one that the kubeconfig names always counts."""
    of_environment = Configuration(host=configuration.host).proxy
    if configuration.proxy == of_environment and _is_loopback(urlsplit(configuration.host).hostname or ""):
        configuration.proxy = None


def _is_loopback(host: str) -> bool:
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"
