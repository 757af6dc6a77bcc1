"""A session on this machine that answers what a test says, for the commands that ask one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from slopewise.adapters.local.service_socket import ServiceSocket, service_folder
from slopewise.adapters.local.session_requests import Answer, JobAnswer, Request, SessionAnswer

SESSION = SessionAnswer(
    "slopewise up", 4711, "marginal", "Auto", "cgroup v2", "http://127.0.0.1:9090", 8080, 3, "", 2, "1 job took 3s"
)


@contextmanager
def answering(answer: Callable[[Request], Answer]) -> Iterator[list[Request]]:
    """Answer while the block runs; what was asked is in the list."""
    seen: list[Request] = []
    stopping = threading.Event()

    def one(line: bytes) -> bytes:
        seen.append(msgspec.json.decode(line, type=Request))
        return msgspec.json.encode(answer(seen[-1]))

    with ServiceSocket(service_folder(), "slopewise up") as socket:

        def serve() -> None:
            while not stopping.wait(0.01):
                socket.poll(one)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield seen
        finally:
            stopping.set()
            thread.join()


def with_jobs(*jobs: JobAnswer) -> Callable[[Request], Answer]:
    """The answer of a session that has these jobs."""
    return lambda _: Answer(session=SESSION, jobs=list(jobs))
