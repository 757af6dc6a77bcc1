"""A client of Grafana's HTTP API over `grafana-api` 1.0.3, and what it raises as our own errors.

The traps of the library are kept in here. It joins the path to the host without a slash, follows a redirected POST as a
GET, parses every answer as JSON, and looks for `message` in an error before it knows that the error is an object: a
proxy's HTML page that contains that word ends in a TypeError.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import SplitResult

import requests
from grafana_api.grafana_api import GrafanaException
from grafana_api.grafana_face import GrafanaFace

from slopewise.adapters.http.config import split_url
from slopewise.errors import DataSourceError, SlopewiseError, UsageError

_REMEDIES = {
    401: "give the token of a service account with the role Editor",
    403: "give the service account of this token the role Editor",
    404: "give the address under which Grafana's own start page opens, with its path",
}


def connect(url: str, token: str, timeout_seconds: float) -> GrafanaFace:
    """A client; nothing is sent yet. UsageError when the address or the token cannot be used."""
    return _client(_address(url), _bearer(token), timeout_seconds)


def _address(url: str) -> SplitResult:
    address = split_url(url)
    if address is None or address.query or address.fragment:
        raise UsageError(f"{url!r} is not Grafana's address; write it like https://grafana.example.org/path.")
    if address.username is not None:  # not repeated here: a password may follow it
        raise UsageError("The Grafana address has a user in it; leave that out and give a token.")
    return address


def _bearer(token: str) -> str:
    """The token as it may stand in a header: a file's closing newline is forgiven, anything stranger is not."""
    token = token.strip()
    if not token or not token.isascii() or any(character.isspace() for character in token):
        raise UsageError(
            "The Grafana token is empty or has characters that a token never has; give that of a service account."
        )
    return token


def _client(address: SplitResult, token: str, timeout_seconds: float) -> GrafanaFace:
    path = address.path.strip("/")
    grafana = GrafanaFace(
        auth=token,
        host=address.netloc,
        protocol=address.scheme,
        url_path_prefix=f"{path}/" if path else "",
        timeout=timeout_seconds,
    )
    # A redirect (http to https, or to a login page) would turn our POST into a GET: better to report it.
    grafana.api.s.max_redirects = 0
    return grafana


@contextmanager
def message_of(url: str, timeout_seconds: float) -> Iterator[None]:
    """Everything that the library and what it stands on are known to raise, as one of our errors."""
    try:
        yield
    except GrafanaException as error:
        raise SlopewiseError(_refusal(url, error)) from error
    except requests.exceptions.TooManyRedirects as error:
        raise DataSourceError(f"{url} redirects elsewhere; give the address at which the redirect ends.") from error
    except requests.exceptions.SSLError as error:
        raise DataSourceError(
            f"{url} cannot be spoken to over TLS; write http:// if it knows none, "
            "or name the file of its authority's certificate in REQUESTS_CA_BUNDLE."
        ) from error
    except requests.exceptions.Timeout as error:
        raise DataSourceError(
            f"{url} did not answer within {timeout_seconds:g} s; look whether Grafana is well, then push again."
        ) from error
    except requests.exceptions.JSONDecodeError as error:
        raise DataSourceError(_not_grafana(url)) from error
    except requests.exceptions.RequestException as error:
        raise DataSourceError(
            f"{url} cannot be reached; look at the address and whether Grafana is running."
        ) from error
    except OSError as error:  # requests' own way to say that a file of certificates is not there
        raise UsageError(f"TLS towards {url} has no certificates ({error}); correct the file's name.") from error
    except (ValueError, TypeError, KeyError) as error:
        raise DataSourceError(_not_grafana(url)) from error


def _refusal(url: str, error: GrafanaException) -> str:
    detail = error.response.get("message") if isinstance(error.response, dict) else None
    remedy = _REMEDIES.get(error.status_code, "see Grafana's log for the reason")
    return f"Grafana at {url} answered {error.status_code}{f' ({detail})' if detail else ''}; {remedy}."


def _not_grafana(url: str) -> str:
    return f"What answers at {url} is not Grafana's API; give the address of Grafana itself, with its path."
