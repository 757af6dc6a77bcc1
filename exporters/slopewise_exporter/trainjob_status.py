"""Posts progress, remaining time and loss to Kubeflow Trainer, which shows them as `TrainJob.status.trainerStatus`.

Kubeflow Trainer 2.2 and later, with the feature gate `TrainJobStatus`, gives each container of a TrainJob three
variables: the address of its status server, and files with a CA and a token. The token is replaced about every hour,
so both files are read again for each post.
"""

from __future__ import annotations

import json
import math
import ssl
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from time import gmtime, monotonic, strftime
from typing import Any, Callable
from urllib.error import HTTPError, URLError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from slopewise_exporter.push import NotSentError
from slopewise_exporter.record import FINISHED, Snapshot

SERVER_URL = "KUBEFLOW_TRAINER_SERVER_URL"
CA_CERT = "KUBEFLOW_TRAINER_SERVER_CA_CERT"
TOKEN = "KUBEFLOW_TRAINER_SERVER_TOKEN"  # noqa: S105 - the name of a variable with the name of a file

EVERY_SECONDS = 15.0
"""Each post is a write to the API server; Kubeflow asks for five seconds or more between two."""

TIMEOUT_SECONDS = 5.0
PACE_POSTS = 20
"""The remaining time is that of the pace of the last 20 posts, five minutes: a job may be given CPU or lose it."""

MAX_SECONDS = 2**31 - 1
"""The field is an int32: 68 years."""

_ANSWER_BYTES = 1 << 16
_SHOWN_CHARACTERS = 200


class TrainJobStatus:
    """The status server of the TrainJob that this process belongs to. Shape: `push.Receiver`."""

    name = "progress and loss for the TrainJob's status"
    every_seconds = EVERY_SECONDS

    def __init__(self, environ: Mapping[str, str], snapshot: Callable[[], Snapshot], objective: str) -> None:
        self._url = environ.get(SERVER_URL, "")
        self._ca_file = environ.get(CA_CERT)
        self._token_file = environ.get(TOKEN)
        self._snapshot = snapshot
        self._evaluation = "eval_loss" if objective == "min" else "eval_score"
        self._pace = Pace()

    def open(self) -> None:
        """NotSentError where the variables cannot be those of Kubeflow Trainer."""
        if not self._url.startswith("https://"):
            raise NotSentError(f"{SERVER_URL} is not an https:// address, and a token is not sent without encryption")
        if not self._token_file:
            raise NotSentError(f"{TOKEN} does not name the file of a token")

    def send(self) -> None:
        """One post; NotSentError, or OSError for the files."""
        now = self._snapshot()
        status = trainer_status(now, self._pace.remaining_seconds(now, monotonic()), self._evaluation)
        request = Request(  # noqa: S310 - the scheme was checked
            self._url,
            json.dumps({"trainerStatus": status}).encode(),
            {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"},
            method="POST",
        )
        opener = build_opener(HTTPSHandler(context=self._trust()), _NoRedirects())
        try:
            with opener.open(request, timeout=TIMEOUT_SECONDS) as answer:
                _check_answer(answer.read(_ANSWER_BYTES))
        except HTTPError as error:
            with error:
                raise NotSentError(f"the status server answered {error.code} ({_message(error)})") from error
        except URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                problem = f"its certificate does not fit the CA in {self._ca_file} ({error.reason.verify_message})"
                raise NotSentError(f"{self._url}: {problem}") from error
            raise NotSentError(f"{self._url} cannot be reached ({error.reason})") from error

    def _token(self) -> str:
        try:
            token = Path(self._token_file or "").read_text(encoding="ascii").strip()
        except UnicodeDecodeError:
            token = ""
        if not token or not token.isprintable() or " " in token:  # http.client would show it in an error
            raise NotSentError(f"{self._token_file} holds no token")
        return token

    def _trust(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self._ca_file or None)
        except ssl.SSLError as error:
            raise NotSentError(f"{self._ca_file} holds no CA certificate ({error.reason})") from error


class Pace:
    """How long the rest of a training takes at the pace of its last posts."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=PACE_POSTS)

    def remaining_seconds(self, now: Snapshot, at_seconds: float) -> float | None:
        """None: no plan, or no step between two posts yet."""
        if self._seen and now.steps < self._seen[-1][1]:  # it was resumed from a checkpoint
            self._seen.clear()
        self._seen.append((at_seconds, now.steps))
        if now.state == FINISHED:
            return 0.0
        since_seconds, since_steps = self._seen[0]
        if now.steps_planned is None or now.steps == since_steps:
            return None
        seconds_a_step = (at_seconds - since_seconds) / (now.steps - since_steps)
        return max(0.0, (now.steps_planned - now.steps) * seconds_a_step)


def trainer_status(now: Snapshot, remaining_seconds: float | None, evaluation: str) -> dict[str, Any]:
    """The fields of `status.trainerStatus`; those that are not known are left out. Values of metrics are texts."""
    status: dict[str, Any] = {"lastUpdatedTime": strftime("%Y-%m-%dT%H:%M:%SZ", gmtime())}
    if now.state == FINISHED:
        status["progressPercentage"] = 100
    elif now.steps_planned is not None:
        # 100 is for a training that has ended: after its last step it still evaluates and saves.
        status["progressPercentage"] = min(99, int(100 * now.steps / now.steps_planned))
    if remaining_seconds is not None:
        status["estimatedRemainingSeconds"] = min(MAX_SECONDS, math.ceil(remaining_seconds))
    metrics = {
        "loss": now.train_loss_ema,
        evaluation: now.eval_loss,
        "steps": now.steps,
        "steps_planned": now.steps_planned,
    }
    status["metrics"] = [
        {"name": name, "value": f"{value:.10g}"} for name, value in metrics.items() if value is not None
    ]
    return status


class _NoRedirects(HTTPRedirectHandler):
    """Another address must not get the token; the redirect becomes an error."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """None: it is not followed."""


def _check_answer(body: bytes) -> None:
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise NotSentError(f"what answered is no status server of Kubeflow Trainer ({_shown(body)})")


def _message(error: HTTPError) -> str:
    """The message of a Kubernetes `Status`, else the beginning of whatever came."""
    try:
        body = error.read(_ANSWER_BYTES)
    except OSError:
        return str(error.reason)
    try:
        return str(json.loads(body)["message"])[:_SHOWN_CHARACTERS]
    except (ValueError, TypeError, KeyError):
        return _shown(body)


def _shown(body: bytes) -> str:
    text = " ".join(body[: 4 * _SHOWN_CHARACTERS].decode("utf-8", "replace").split())
    return repr(text[:_SHOWN_CHARACTERS]) if text else "an empty answer"
