"""Answers a model's requests one after another, and hangs or fails on purpose where a test asks for that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import count
from threading import Event, Lock
from types import TracebackType
from typing import Self

Answer = Callable[[int], Sequence[int]]
"""From the number of a request to its predictions."""


class RequestFailedError(Exception):
    """The request gets no predictions; the server answers 500."""


class Worker:
    """One worker of a model server: while it computes an answer the other requests wait.

    Requests that still wait when it is left fail, so that the server can be closed.
    """

    def __init__(self, answer: Answer, hang_after: int | None = None, fail_ratio: float = 0.0) -> None:
        """`hang_after`: requests that are answered before all others hang; None: none hangs.

        `fail_ratio`: of the requests, those that fail at once, evenly spread; 0: none, 1: all.
        """
        self._answer = answer
        self._hang_after = math.inf if hang_after is None else hang_after
        self._fail_ratio = fail_ratio
        self._requests = count(1)
        self._turn = Lock()
        self._closing = Event()

    def answer(self, request: int) -> Sequence[int]:
        """The predictions; RequestFailedError."""
        number = next(self._requests)
        if number > self._hang_after:
            self._closing.wait()
        if math.floor(number * self._fail_ratio) > math.floor((number - 1) * self._fail_ratio):
            raise RequestFailedError
        with self._turn:
            if self._closing.is_set():
                raise RequestFailedError
            return self._answer(request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
