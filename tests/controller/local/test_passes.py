"""What a session shows of its passes, and when it reads its policy file again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run

from slopewise.config.training_policy import TrainingPolicySpec
from slopewise.local.passes import FollowedPasses, PolicyFile
from slopewise.model import Resize

AUTO = TrainingPolicySpec.model_validate({"mode": "Auto", "policy": {"name": "flowcon"}})


def test_each_job_has_its_state_and_every_tried_resize(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [a_sim_job("one", 150.0), a_sim_job("two", 150.0, 20.0)]
    reports = record_run(monkeypatch, an_instance(jobs, [a_sim_node()]), a_document("flowcon"), tmp_path / "r.jsonl")
    passes = FollowedPasses(lambda: AUTO)
    for report in reports:
        passes(report)
    assert set(passes.statuses) == {"one", "two"}
    assert passes.statuses["one"].policy == "flowcon"
    resized = [each.decision for report in reports for each in report.results.of(Resize)]
    assert any(each.job_uid == "one" for each in resized)
    assert passes.statuses["one"].history[-1].action == "Resize"
    passes.forget(["one"])
    assert set(passes.statuses) == {"two"}


def test_a_policy_file_is_read_again_once_it_has_changed_and_a_broken_one_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"

    def write(text: str, at: int) -> None:
        path.write_text(text)
        os.utime(path, (at, at))  # not all file systems tell two writes of one moment apart

    write("{spec: {mode: Recommend}}", 1)
    said: list[str] = []
    file = PolicyFile(path, said.append)
    assert file.changed() is None
    write("{spec: {mode: Auto}}", 2)
    document = file.changed()
    assert document is not None
    assert (document.spec.mode, file.changed()) == ("Auto", None)
    write("{spec: {mode: Autox}}", 3)
    assert [file.changed(), file.changed()] == [None, None]
    (sentence,) = said
    assert sentence.startswith(f"{path}: spec.mode: must be")
    assert sentence.endswith("Nothing is changed until the file can be used.")
    path.unlink()
    assert file.changed() is None
