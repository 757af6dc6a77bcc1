"""`slopewise replay` as a user meets it, in a process whose hashes differ from those of the recorded run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from support.command_line import slopewise
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run

from slopewise.decision_record.lines import Pass, decode, encode


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "record.jsonl"
    jobs = [a_sim_job(f"job-{n}", 100.0 + 30 * n, 20.0 * n) for n in range(3)]
    record_run(monkeypatch, an_instance(jobs, [a_sim_node()]), a_document("flowcon"), path)
    return path


def test_the_same_decisions_in_another_process(record: Path) -> None:
    command = [sys.executable, "-m", "slopewise", "replay", str(record)]
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    replayed = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)
    assert re.fullmatch(
        r"\d+ passes, \d+ decisions\. All was decided the same again, bit for bit\.\n", replayed.stdout
    ), replayed.stdout + replayed.stderr
    assert (replayed.returncode, replayed.stderr) == (0, "")


def test_a_record_that_gives_something_else_now_ends_with_exit_code_1_and_says_what(record: Path) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    last = decode(lines[-1])
    assert isinstance(last, Pass)
    record.write_bytes(b"".join(lines[:-1]) + encode(_with_reasons(last, {"job-9": "\x1b[31mhostile\u202e"})))
    printed, as_json = slopewise("replay", str(record)), slopewise("replay", str(record), "-o", "json")
    assert (printed.returncode, as_json.returncode) == (1, 1)
    assert "1 pass decided something else:" in printed.stdout
    assert "hostile" in printed.stdout
    assert "\x1b" not in printed.stdout
    facts = json.loads(as_json.stdout)
    assert (facts["same"], len(facts["different"])) == (False, 1)
    assert facts["different"][0]["where"] == f"{record}, line {len(lines)}"


def _with_reasons(line: Pass, reasons: dict[str, str]) -> Pass:
    result = msgspec.structs.replace(line.result, reasons={**line.result.reasons, **reasons})
    return msgspec.structs.replace(line, result=result)


def test_a_mistake_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.jsonl").touch()
    ended = slopewise("replay", str(empty))
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "the record holds no pass yet" in ended.stderr


def test_a_record_that_cannot_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text("- {name: a, command: sleep 1}\n")
    arguments = ("run", "--local", "--jobs", str(jobs), "--record", str(tmp_path / "file" / "records"))
    ended = slopewise(*arguments)
    assert ended.returncode == 2
    assert "cannot be written" in ended.stderr
    only_size = slopewise("run", "--local", "--jobs", str(jobs), "--record-max-mib", "5")
    assert only_size.returncode == 2
    assert "add --record FOLDER" in only_size.stderr
