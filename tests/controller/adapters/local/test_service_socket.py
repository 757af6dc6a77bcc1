"""The socket of a session: its user's alone, one session at a time, one line each way."""

from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import chdir, suppress
from pathlib import Path

import pytest

from slopewise.adapters.local import service_socket
from slopewise.adapters.local.service_socket import NoServiceError, ServiceSocket, ask, service_folder
from slopewise.errors import SlopewiseError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / ("long-" * 30)))  # a path that no socket could have
    return service_folder()


@pytest.fixture
def session(folder: Path) -> Iterator[ServiceSocket]:
    with ServiceSocket(folder, "slopewise up") as running:
        yield running


def answered(session: ServiceSocket, folder: Path, request: bytes) -> bytes:
    """What a client gets while the session is polled."""
    answers: list[bytes] = []
    client = threading.Thread(target=lambda: answers.append(ask(folder, request)))
    client.start()
    while client.is_alive():
        session.poll(lambda line: b"to " + line.strip())
        client.join(0.01)
    return answers[0]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_request_is_one_line_and_so_is_its_answer(session: ServiceSocket, folder: Path) -> None:
    assert answered(session, folder, b'{"a": 1}') == b'to {"a": 1}\n'
    assert answered(session, folder, b"x" * 300_000) == b"to " + b"x" * 300_000 + b"\n"


def test_folder_and_socket_are_its_users_alone(session: ServiceSocket, folder: Path) -> None:
    assert (mode(folder), mode(folder / "socket"), mode(folder / "lock")) == (0o700, 0o600, 0o600)
    folder.chmod(0o755)
    assert mode(service_folder()) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 65_534, -1)
    with pytest.raises(SlopewiseError, match="belongs to another user; remove it"):
        service_folder()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_gets_no_answer_even_where_the_folder_lets_it_in(session: ServiceSocket, folder: Path) -> None:
    folder.chmod(0o755)
    (folder / "socket").chmod(0o666)
    seen: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as other, chdir(folder):
        os.seteuid(65_534)
        try:
            other.connect("socket")
        finally:
            os.seteuid(0)
        other.sendall(b"x\n")
        session.poll(lambda line: seen.append(line) or b"")  # type: ignore[func-returns-value]
        with suppress(ConnectionResetError):
            assert other.recv(10) == b""
    assert seen == []


def test_a_second_session_of_the_user_is_told_who_runs(session: ServiceSocket, folder: Path) -> None:
    with pytest.raises(SlopewiseError, match=rf"slopewise up \(process {os.getpid()}\) has the jobs of this user"):
        ServiceSocket(folder, "slopewise up")


def test_without_a_session_that_is_said_and_what_a_killed_one_left_is_replaced(folder: Path) -> None:
    with pytest.raises(NoServiceError, match="no session runs here; start one with `slopewise up`"):
        ask(folder, b"x")
    (folder / "socket").touch()
    (folder / "lock").write_text("of a killed one")
    with ServiceSocket(folder, "slopewise up") as session:
        assert answered(session, folder, b"x") == b"to x\n"
    assert not (folder / "socket").exists()


def test_without_descriptors_it_goes_on(session: ServiceSocket, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def accept(_: socket.socket) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(socket.socket, "accept", accept)
        session.poll(lambda line: line)
    assert answered(session, folder, b"x") == b"to x\n"


def test_a_silent_client_is_left_alone_and_the_next_one_is_served(session: ServiceSocket, folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as silent, service_socket._short(folder) as short:
        silent.connect(str(short / "socket"))
        assert answered(session, folder, b"x") == b"to x\n"
