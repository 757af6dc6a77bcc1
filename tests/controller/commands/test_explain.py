"""`slopewise explain` against a cluster and against a record, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.api_server import ApiServer
from support.command_line import slopewise
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run
from support.stored import action, condition, put_growth

from slopewise.commands import console

STATUS: dict[str, Any] = {
    "state": "Training",
    "node": "node-a",
    "policy": "default",
    "progress": "51%",
    "eta": "3m20s",
    "loss": 0.213,
    "growth": 0.0123,
    "cpu": "0.5 → 1",
    "cpuMillicores": 500,
    "cpuAcceptedMillicores": 1000,
    "class": "NL",
    "promise": "kept: 0.1s of 0.2s",
    "reason": "cooldown: 12 s left of 60 s",
    "conditions": [
        condition("Managed", "True", "Managed", "its CPU may be changed"),
        condition("Warned", "True", "SeeMessage", "label \x1b[31mepoch\u202e changes"),
        condition("ResizePending", "False", "NothingPending"),
        condition("Finished", "True", "Succeeded", "done"),
    ],
    "history": [action("limits 400m to 500m", "NL, still learning", action="Resize", result="applied")],
}


def test_a_job_of_a_cluster_is_explained_from_its_growth(server: ApiServer, reach: tuple[str, str]) -> None:
    put_growth(server, "train", **STATUS)
    ended = slopewise("explain", "train", "-o", "json", *reach)
    assert ended.returncode == 0, ended.stderr
    (explained,) = json.loads(ended.stdout)
    assert explained["job"] == "team-a/train"
    assert [(fact["label"], fact["text"]) for fact in explained["facts"]] == [
        ("job", "Training on node-a, managed by the policy default"),
        ("progress", "51% of its planned steps; 3m20s left at this pace"),
        ("loss", "0.213; growth efficiency 0.0123/s for a whole node of CPU"),
        ("CPU", "0.5 → 1 cores (1000m accepted, not yet in effect)"),
        ("promise", "kept: 0.1s of 0.2s"),
        ("class", "NL: still learning"),
        ("decision", "cooldown: 12 s left of 60 s"),
        (
            "attention",
            "Warned is True (SeeMessage) since 2026-11-21 15:00:00: label \x1b[31mepoch\u202e changes",
        ),
        ("done", "2026-11-21 15:00:00 Resize limits 400m to 500m, applied: NL, still learning"),
    ]
    printed = slopewise("explain", "team-a/train", *reach).stdout
    assert "cooldown: 12 s left of 60 s" in printed
    assert "\x1b" not in printed
    assert "\u202e" not in printed
    assert [line for line in printed.splitlines() if line != line.rstrip()] == [], "no line is padded in a pipe"


def test_workloads_of_one_name_in_two_namespaces_are_both_explained(server: ApiServer, reach: tuple[str, str]) -> None:
    put_growth(server, "train", **STATUS)
    put_growth(server, "train", "team-b", state="Unmanaged")
    both = json.loads(slopewise("explain", "train", "-o", "json", *reach).stdout)
    assert [each["job"] for each in both] == ["team-a/train", "team-b/train"]
    assert both[1]["facts"] == [{"label": "job", "text": "Unmanaged, which no policy manages"}]


def test_a_job_that_never_was_ends_with_exit_code_2(reach: tuple[str, str]) -> None:
    unknown = slopewise("explain", "nope", *reach)
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "no workload nope is managed in the cluster; `kubectl get growth -A`" in unknown.stderr


def test_a_job_of_a_record_is_explained_on_a_narrow_terminal_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.jsonl"
    jobs = [a_sim_job("one", 150.0), a_sim_job("two", 150.0, 20.0)]
    record_run(monkeypatch, an_instance(jobs, [a_sim_node()]), a_document("flowcon"), path)
    monkeypatch.setattr(console.out, "_width", 40)
    ended = slopewise("explain", "one", "--record", str(path))
    assert ended.returncode == 0, ended.stderr
    assert "simulated/one" in ended.stdout
    assert max(map(len, ended.stdout.splitlines())) <= 40
