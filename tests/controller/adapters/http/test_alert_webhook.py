"""The endpoint for Alertmanager: who may call it, how much it reads, and what it answers."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import requests
from prometheus_client import CollectorRegistry
from support.waiting import eventually

from slopewise.adapters.health import HealthServer
from slopewise.adapters.http.alert_webhook import (
    MAX_BODY_BYTES,
    MAX_CALLS,
    PATH,
    AlertWebhook,
    CallOutcome,
    check_token_file,
)
from slopewise.errors import SlopewiseError, UsageError

TOKEN = "a-token-of-the-tests"
LOOPBACK = "127.0.0.1"


class Stage:
    """A server with the webhook, and what reached the handler."""

    def __init__(self, token_file: Path) -> None:
        self.token_file = token_file
        token_file.write_text(f"{TOKEN}\n")
        self.bodies: list[bytes] = []
        self.outcomes: list[CallOutcome] = []
        self.errors: list[str] = []
        self.failure: Exception | None = None
        self.held: threading.Event | None = None
        webhook = AlertWebhook(
            token_file, self.handle, self.outcomes.append, lambda error: self.errors.append(str(error))
        )
        self.server = HealthServer(CollectorRegistry(), lambda: True, LOOPBACK, 0, more={PATH: webhook})
        self.url = f"http://{LOOPBACK}:{self.server.port}{PATH}"

    def handle(self, body: bytes) -> str:
        self.bodies.append(body)
        if self.held is not None:
            assert self.held.wait(30)
        if self.failure is not None:
            raise self.failure
        return "1 stored"

    def post(self, data: bytes = b"{}", token: str | None = TOKEN, scheme: str = "Bearer") -> requests.Response:
        headers = {} if token is None else {"Authorization": f"{scheme} {token}"}
        return requests.post(self.url, data=data, headers=headers, timeout=20)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path / "token")
    yield made
    made.server.close()


def test_a_call_with_the_token_is_handled_before_it_is_answered(stage: Stage) -> None:
    answer = stage.post(b'{"a": 1}')
    assert (answer.status_code, answer.text) == (200, "1 stored\n")
    assert (stage.bodies, stage.outcomes) == ([b'{"a": 1}'], ["accepted"])
    stage.token_file.write_text("another-token-of-the-tests")
    assert [stage.post(token=each).status_code for each in (TOKEN, "another-token-of-the-tests")] == [401, 200]


@pytest.mark.parametrize(
    ("token", "scheme"),
    [
        (None, ""),
        ("", "Bearer"),
        (TOKEN[:-1], "Bearer"),
        (TOKEN + "x", "Bearer"),
        (TOKEN, "Basic"),
        ("é" * 20, "Bearer"),
    ],
)
def test_a_forged_call_does_nothing(stage: Stage, token: str | None, scheme: str) -> None:
    answer = stage.post(token=None if token is None else token.encode().decode("latin-1"), scheme=scheme)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert (stage.bodies, stage.outcomes) == ([], ["unauthorised"])


@pytest.mark.parametrize("content", ["", "short", "\n\n"])
def test_an_empty_token_lets_no_call_in(stage: Stage, content: str) -> None:
    stage.token_file.write_text(content)
    assert stage.post(token=content.strip()).status_code == 401
    with pytest.raises(UsageError, match="fewer than 16 characters"):
        check_token_file(stage.token_file)


def test_without_its_file_each_call_is_asked_to_come_again(stage: Stage) -> None:
    stage.token_file.unlink()
    answer = stage.post()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "5")
    assert "no token can be read" in stage.errors[0]
    with pytest.raises(UsageError, match="no token can be read"):
        check_token_file(stage.token_file)


def test_other_methods_are_refused(stage: Stage) -> None:
    answer = requests.get(stage.url, timeout=20)
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")


def request(stage: Stage, *lines: str) -> socket.socket:
    """A connection on which these lines of a request's head were sent."""
    connection = socket.create_connection((LOOPBACK, stage.server.port), timeout=20)
    head = (f"POST {PATH} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", *lines, "", "")
    connection.sendall("\r\n".join(head).encode())
    return connection


def test_a_body_of_10_megabytes_is_refused_without_being_read(stage: Stage) -> None:
    sent = 0
    with request(stage, f"Content-Length: {10 * 2**20}") as connection:
        with suppress(OSError):
            while sent < 10 * 2**20:
                connection.sendall(b"x" * 65_536)
                sent += 65_536
        answer = b""
        with suppress(ConnectionResetError):
            answer = connection.recv(4096)
    assert answer == b"" or b" 413 " in answer.splitlines()[0]
    assert (stage.bodies, stage.outcomes) == ([], ["refused"])
    assert sent < 10 * 2**20, "the connection is closed before all of it is sent"


def test_its_sender_reads_why(stage: Stage) -> None:
    with request(stage, f"Content-Length: {MAX_BODY_BYTES + 1}") as connection:
        connection.sendall(b"x" * (256 * 1024))
        answer = connection.makefile("rb").read()
    assert b" 413 " in answer.splitlines()[0]
    assert b"set max_alerts" in answer


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (("Content-Length: 1e3",), 411),
        (("Content-Length: " + "9" * 400,), 413),
        (("Transfer-Encoding: chunked",), 411),
    ],
)
def test_a_body_of_unknown_length_is_refused(stage: Stage, lines: tuple[str, ...], status: int) -> None:
    with request(stage, *lines) as connection:
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert f" {status} ".encode() in answer.splitlines()[0]
    assert stage.bodies == []


def test_a_body_that_ends_early_does_nothing(stage: Stage) -> None:
    with request(stage, "Content-Length: 100") as connection:
        connection.sendall(b"{")
        connection.shutdown(socket.SHUT_WR)
        answer = connection.makefile("rb").read()
    assert b" 400 " in answer.splitlines()[0]
    assert (stage.bodies, stage.outcomes) == ([], ["refused"])


def test_what_the_handler_cannot_use_is_not_to_be_sent_again(stage: Stage) -> None:
    stage.failure = UsageError("alert \x1b[31mX: no scope.")
    answer = stage.post()
    assert answer.status_code == 400
    assert "no scope" in answer.text
    assert "\x1b" not in answer.text


@pytest.mark.parametrize("failure", [SlopewiseError("the API server is away"), RuntimeError("a bug")])
def test_what_could_not_be_stored_is_to_be_sent_again(stage: Stage, failure: Exception) -> None:
    stage.failure = failure
    answer = stage.post()
    assert (answer.status_code, stage.outcomes, stage.errors) == (503, ["failed"], [str(failure)])
    assert str(failure) not in answer.text


def test_calls_beyond_a_few_are_asked_to_come_again(stage: Stage) -> None:
    stage.held = threading.Event()
    threads = [threading.Thread(target=stage.post) for _ in range(MAX_CALLS)]
    for thread in threads:
        thread.start()
    assert eventually(lambda: len(stage.bodies) == MAX_CALLS)
    assert stage.post().status_code == 503
    stage.held.set()
    for thread in threads:
        thread.join()
    assert stage.outcomes == ["busy", *["accepted"] * MAX_CALLS]
    assert stage.post().status_code == 200
