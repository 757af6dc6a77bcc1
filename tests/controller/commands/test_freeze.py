"""`slopewise freeze` and `unfreeze` against an API server, and what `status` says of them."""

from __future__ import annotations

import json
import subprocess
import time
from typing import Any

import pytest
from support.api_server import ApiServer, refusal
from support.command_line import slopewise

from slopewise.adapters.kube.state.freezes import ENDED_LABEL, freeze_path, parse_freeze
from slopewise.config.freeze import in_utc
from slopewise.operate.freeze import name_by_hand


def run(reach: tuple[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return slopewise(*words, *reach)


def freezes(server: ApiServer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.client().get(freeze_path())["items"]
    return found


def put(server: ApiServer, name: str, labels: dict[str, str] | None = None, /, **spec: Any) -> None:
    server.put(freeze_path(), {"metadata": {"name": name, "labels": labels or {}}, "spec": {"scope": "all", **spec}})


def test_a_freeze_is_made_changed_shown_and_deleted(server: ApiServer, reach: tuple[str, str]) -> None:
    made = run(reach, "freeze", "namespace/team-a", "--for", "2h", "--reason", "load \x1b[31mtest")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("frozen: Freeze by-hand-namespace-team-a (namespace/team-a, until 20")
    assert "\x1b" not in made.stdout
    record = parse_freeze(freezes(server)[0])
    lasts = (record.spec.until_seconds or 0) - time.time()
    assert (record.spec.subject, record.spec.effect, 7100 < lasts < 7300) == ("namespace/team-a", "Freeze", True)
    assert record.spec.source.startswith("by hand, ")

    again = run(reach, "freeze", "namespace/team-a", "--effect", "Recommend", "-o", "json")
    assert json.loads(again.stdout)["spec"]["effect"] == "Recommend"
    [only] = freezes(server)
    assert only["spec"]["reason"] == ""

    status = run(reach, "status")
    assert status.returncode == 0, status.stderr
    [line] = [line for line in status.stdout.splitlines() if line.startswith("frozen: ")]
    assert line.startswith("frozen: Freeze by-hand-namespace-team-a (namespace/team-a, as in mode Recommend, until")
    [shown] = json.loads(run(reach, "status", "-o", "json").stdout)["freezes"]
    assert (shown["name"], shown["scope"], shown["of"]) == ("by-hand-namespace-team-a", "namespace", "team-a")

    gone = run(reach, "unfreeze", "namespace/team-a")
    assert (gone.returncode, gone.stdout) == (0, "unfrozen: by-hand-namespace-team-a\n")
    assert freezes(server) == []
    none = run(reach, "unfreeze", "namespace/team-a")
    assert (none.returncode, none.stdout) == (1, "there is no Freeze of namespace/team-a\n")


def test_unfreeze_deletes_those_of_others_and_no_other_scope(server: ApiServer, reach: tuple[str, str]) -> None:
    put(server, "of-git")
    put(server, "alert-1", {"slopewise.dev/made-by": "alert"})
    put(server, "ended", {ENDED_LABEL: "true"})
    put(server, "other", scope="node", name="n")
    done = run(reach, "unfreeze", "all", "-o", "json")
    assert json.loads(done.stdout) == {"deleted": ["alert-1", "of-git"]}
    assert {each["metadata"]["name"] for each in freezes(server)} == {"ended", "other"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("freeze", "team-a"), "'team-a' is no scope; write all, namespace/NAME"),
        (("freeze", "all", "--for", "soon"), "--for 'soon' is not a time from 1s to 366d"),
        (("freeze", "all", "--for", "367d"), "--for '367d' is not a time"),
        (("freeze", "all", "--reason", "x" * 1025), "at most 1024 characters"),
        (("unfreeze", "pod/x"), "'pod/x' is no scope"),
    ],
)
def test_mistakes_exit_2_and_send_nothing(
    server: ApiServer, reach: tuple[str, str], words: tuple[str, ...], message: str
) -> None:
    done = run(reach, *words)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr
    assert server.requests == []


def test_a_missing_right_is_named(server: ApiServer, reach: tuple[str, str]) -> None:
    forbidden = refusal(403, "Forbidden", "freezes.slopewise.dev is forbidden: User cannot create resource")
    server.fault(forbidden, method="POST", path="/freezes")
    done = run(reach, "freeze", "all")
    assert (done.returncode, "cannot create resource" in done.stderr) == (1, True), done.stderr


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (refusal(403, "Forbidden", "no"), "freezes: not known (no right to list freezes in the cluster)"),
        (refusal(404, "NotFound", "no"), "freezes: not known (there is no such kind here; apply manifests/crds)"),
    ],
)
def test_status_goes_on_where_freezes_cannot_be_read(
    server: ApiServer, reach: tuple[str, str], fault: Any, words: str
) -> None:
    server.fault(fault, path="/freezes")
    done = run(reach, "status")
    assert done.returncode == 0, done.stderr
    assert words in done.stdout.splitlines()


def test_status_shows_a_few_of_many_and_none_that_has_ended(server: ApiServer, reach: tuple[str, str]) -> None:
    put(server, "over", until=in_utc(time.time() - 5).isoformat())
    for number in range(8):
        put(server, f"f{number}", scope="node", name=f"n{number}", reason="a\nb")
    lines = [line for line in run(reach, "status").stdout.splitlines() if line.startswith("frozen: ")]
    assert lines[0] == "frozen: Freeze f0 (node/n0): a b"
    assert lines[-1] == "frozen: 3 more; kubectl get freezes"
    assert len(lines) == 6


def test_names_of_long_scopes_stay_valid_and_different() -> None:
    one, other = (name_by_hand(("node", "a" * 240 + letter)) for letter in "xy")
    assert one != other
    assert len(one) <= 253
    assert name_by_hand(("all", None)) == "by-hand-all"
