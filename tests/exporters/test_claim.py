"""Which of the processes of a training reports: the claim that they share."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import permutations

import pytest

from slopewise_exporter.instrument import claim as module
from slopewise_exporter.instrument.claim import CODE, FRAMEWORK, OUTPUT, RANKS, Claim, claim, claim_as_wrapper, token


class Holder:
    """What a process does that has the right: it gives it up to a better one."""

    def __init__(self, rank: bytes) -> None:
        self.rank = rank
        self.claim: Claim | None = None
        self.asked: list[bytes] = []

    def gives_up(self, rank: bytes) -> bool:
        self.asked.append(rank)
        if RANKS.index(rank) <= RANKS.index(self.rank):
            return False
        assert self.claim is not None
        self.claim.release()
        return True


class Take:
    """Takes the right to one training."""

    def __init__(self) -> None:
        self.token = token({})
        self.holders: list[Holder] = []

    def __call__(self, rank: bytes) -> Holder | None:
        holder = Holder(rank)
        holder.claim = claim(self.token, rank, holder.gives_up)
        self.holders.append(holder)
        return None if holder.claim is None else holder


@pytest.fixture(params=["abstract", "file"])
def take(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Take]:
    """By an abstract name, or, as on other systems than Linux, by a file."""
    if request.param == "abstract" and sys.platform != "linux":
        pytest.skip("abstract names are of Linux")
    with tempfile.TemporaryDirectory(prefix="claim") as folder:
        if request.param == "file":
            monkeypatch.setattr(module, "_ABSTRACT", False)
            monkeypatch.setenv("TMPDIR", folder)
            monkeypatch.setattr(tempfile, "tempdir", None)
        take = Take()
        yield take
        for holder in take.holders:
            if holder.claim is not None:
                holder.claim.release()


@pytest.mark.parametrize(("first", "second"), list(permutations(RANKS, 2)))
def test_a_better_way_of_reporting_gets_the_right_and_a_weaker_one_does_not(
    take: Take, first: bytes, second: bytes
) -> None:
    assert take(first)
    assert (take(second) is not None) == (RANKS.index(second) > RANKS.index(first))


@pytest.mark.parametrize("rank", RANKS)
def test_of_two_equals_the_first_keeps_it_until_it_ends(take: Take, rank: bytes) -> None:
    first = take(rank)
    assert first is not None
    assert first.claim is not None
    assert take(rank) is None
    first.claim.release()
    assert take(rank)


def test_the_parent_is_asked_by_whatever_gets_the_right_and_by_nothing_else(take: Take) -> None:
    asked: list[bytes] = []

    def gives_up(rank: bytes) -> bool:
        asked.append(rank)
        return True

    parent = claim_as_wrapper(take.token, gives_up)
    assert parent is not None
    try:
        take(FRAMEWORK)
        take(OUTPUT)
        take(CODE)
    finally:
        parent.release()
    assert asked == [FRAMEWORK, CODE]


def test_two_trainings_do_not_disturb_each_other() -> None:
    held = [claim(token({}), OUTPUT, lambda rank: False) for _ in range(2)]
    assert all(held)
    for each in held:
        assert each is not None
        each.release()


def test_what_asks_without_a_rank_gets_nothing_and_the_next_is_answered(take: Take) -> None:
    first = take(OUTPUT)
    assert first is not None
    assert first.claim is not None
    for said in (b"", b"\xff" * 100, b"root"):
        with socket.socket(socket.AF_UNIX) as asker:
            asker.connect(first.claim._name)
            asker.sendall(said)
            asker.shutdown(socket.SHUT_WR)
            assert asker.recv(1) == b"n"
    assert first.asked == []
    assert take(CODE)


def test_another_user_of_the_machine_is_not_answered(take: Take, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(socket, "SO_PEERCRED"):
        pytest.skip("this system does not say who asks")
    first = take(OUTPUT)
    assert first is not None
    monkeypatch.setattr(module, "_is_own_user", lambda _: False)
    assert take(CODE) is None
    assert first.asked == []


def test_a_killed_process_leaves_nothing_that_is_held(take: Take) -> None:
    script = f"""
import sys
from slopewise_exporter.instrument import claim as module
module._ABSTRACT = {module._ABSTRACT}
assert module.claim({take.token!r}, module.CODE, lambda rank: False)
print("held", flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ}
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        assert take(CODE) is None
        process.kill()
        process.wait()
    assert take(OUTPUT)


def test_the_token_is_made_once_and_shared_with_what_is_started_later() -> None:
    environ: dict[str, str] = {}
    assert token(environ) == token(environ) == environ[module.TOKEN_VARIABLE]
    assert token({}) != token(environ)
