"""Puts our dashboards into a Grafana: what `slopewise dashboards push` does.

Before this: the command line, and the JSON that grafana/generate.py wrote. After it: Grafana's HTTP API, through
`grafana-api` 1.0.3, whose traps are kept in here. It joins the path to the host without a slash, follows a
redirected POST as a GET, parses every answer as JSON, and looks for `message` in an error before it knows that the
error is an object: a proxy's HTML page that contains that word ends in a TypeError.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import requests
from grafana_api.grafana_api import GrafanaException
from grafana_api.grafana_face import GrafanaFace

from slopewise import __version__
from slopewise.errors import DataSourceError, SlopewiseError, UsageError

DEFAULT_FOLDER = "Slopewise"
_PACKAGE = Path(__file__).resolve().parent.parent
_REMEDIES = {
    401: "give the token of a service account with the role Editor",
    403: "give the service account of this token the role Editor",
    404: "give the address under which Grafana's own start page opens, with its path",
}


@dataclass(frozen=True)
class PushResult:
    """One dashboard that Grafana now has. `url` opens it; `created` is False when it replaced a former version."""

    uid: str
    title: str
    url: str
    created: bool

    def __str__(self) -> str:
        return f"{'created' if self.created else 'replaced'} {self.title}: {self.url}"


def dashboards_folder() -> Path:
    """Where the shipped JSON is: inside the package in a wheel, in grafana/ in a checkout."""
    packaged = _PACKAGE / "dashboards"
    return packaged if packaged.is_dir() else _PACKAGE.parents[1] / "grafana" / "dashboards"


def push_dashboards(
    url: str,
    token: str,
    folder: str = DEFAULT_FOLDER,
    *,
    dashboards: Path | None = None,
    verify_tls: bool | str = True,
    timeout_seconds: float = 10.0,
) -> list[PushResult]:
    """Create or replace every dashboard of ours in `folder`, which is created when Grafana has none of that title.

    `url` is Grafana's address with its path, e.g. `https://example.org/grafana`. `token` is that of a service
    account with the role Editor. `dashboards` is a folder of JSON files; without it, those that we ship.
    `verify_tls` may name a file of certificates. `timeout_seconds` bounds the wait for a connection and for each
    piece of an answer.

    Raises UsageError when an argument or a file cannot be used, DataSourceError when Grafana cannot be reached
    or what answers is not Grafana, SlopewiseError when Grafana refuses. What was pushed before an error stays:
    a second push replaces it.
    """
    grafana = _client(_address(url), _bearer(token), timeout_seconds, verify_tls=verify_tls)
    documents = _load(dashboards or dashboards_folder())
    with _message_of(url, timeout_seconds):
        folder_uid = _ensure_folder(grafana, folder)
        return [_push(grafana, document, folder_uid, url) for document in documents]


def _address(url: str) -> SplitResult:
    try:
        address = urlsplit(url)
        usable = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:  # a port that is no number, a bracket that is not closed
        usable = False
    if not usable or address.query or address.fragment:
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


def _client(address: SplitResult, token: str, timeout_seconds: float, *, verify_tls: bool | str) -> GrafanaFace:
    path = address.path.strip("/")
    grafana = GrafanaFace(
        auth=token,
        host=address.netloc,
        protocol=address.scheme,
        url_path_prefix=f"{path}/" if path else "",
        verify=verify_tls,
        timeout=timeout_seconds,
    )
    # A redirect (http to https, or to a login page) would turn our POST into a GET: better to report it.
    grafana.api.s.max_redirects = 0
    return grafana


def _load(folder: Path) -> list[dict[str, Any]]:
    """The dashboards of `folder`, in the order of their file names, all read before the first is sent."""
    files = sorted(folder.glob("*.json"))
    if not files:
        raise UsageError(f"{folder} has no dashboards; give a folder with Grafana's JSON files.")
    return [_read(file) for file in files]


def _read(file: Path) -> dict[str, Any]:
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{file}: cannot be read as JSON ({error}); generate or export it again.") from error
    if not isinstance(document, dict) or not document.get("uid") or not document.get("title"):
        raise UsageError(f"{file}: is not a dashboard with a uid and a title; export it from Grafana again.")
    return document


def _ensure_folder(grafana: GrafanaFace, title: str) -> str:
    """The uid of the folder with this title, made now when there is none; the root, `General`, has none."""
    if title in ("", "General"):
        return ""
    for folder in grafana.folder.get_all_folders():
        if folder["title"] == title:
            return str(folder["uid"])
    return str(grafana.folder.create_folder(title)["uid"])


def _push(grafana: GrafanaFace, document: Mapping[str, Any], folder_uid: str, url: str) -> PushResult:
    answer = grafana.dashboard.update_dashboard(
        {
            "dashboard": {**document, "id": None},  # an id is one Grafana's own number; the uid is ours
            "folderUid": folder_uid,
            "overwrite": True,
            "message": f"slopewise {__version__}",
        }
    )
    return PushResult(
        uid=document["uid"],
        title=document["title"],
        url=f"{url.rstrip('/')}/d/{document['uid']}",
        created=answer["version"] == 1,
    )


@contextmanager
def _message_of(url: str, timeout_seconds: float) -> Iterator[None]:
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
