"""`slopewise history` against a cluster and against a record, as a user and a notebook meet it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from support.api_server import ApiServer
from support.command_line import slopewise
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run
from support.stored import action, put_growth

HOSTILE = "\x1b[2J\u202e<b>n1</b> [red]to n2"
FORMULA = "=HYPERLINK(1)"


def test_csv_has_a_row_for_each_action_and_neither_escape_nor_formula(
    server: ApiServer, reach: tuple[str, str]
) -> None:
    put_growth(server, "train", history=[action(HOSTILE, FORMULA)])
    ended = slopewise("history", "-o", "csv", *reach)
    assert ended.returncode == 0, ended.stderr
    (row,) = csv.DictReader(io.StringIO(ended.stdout))
    assert (row["time"], row["workload"], row["result"]) == ("2026-11-21T15:00:00Z", "train", "resumed")
    assert row["detail"] == f"'{FORMULA}"
    assert "<b>n1</b> [red]to n2" in row["change"]
    assert row["after"] == "", "a JobGrowth has no figures"
    printed = slopewise("history", *reach).stdout
    assert "[red]to n2" in printed
    for text in (ended.stdout, printed):
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_csv_of_nothing_has_its_headings(reach: tuple[str, str]) -> None:
    (heading,) = slopewise("history", "-o", "csv", *reach).stdout.splitlines()
    assert heading.startswith("time,namespace,workload,slot,action,change,result,detail")


def test_a_record_is_listed_in_each_format_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.jsonl"
    jobs = [a_sim_job("one", 150.0), a_sim_job("two", 150.0, 20.0)]
    record_run(monkeypatch, an_instance(jobs, [a_sim_node()]), a_document("flowcon"), path)
    listed = {form: slopewise("history", "--record", str(path), "-o", form) for form in ("table", "json", "csv")}
    assert {each.returncode for each in listed.values()} == {0}
    rows = list(csv.DictReader(io.StringIO(listed["csv"].stdout)))
    found = json.loads(listed["json"].stdout)
    assert len(rows) == len(found) > 0
    assert [int(row["after"]) for row in rows] == [each["after"] for each in found]
    for each in found:
        assert f"simulated/{each['workload']}" in listed["table"].stdout
        assert each["change"] in listed["table"].stdout
    of_one = slopewise("history", "one", "--record", str(path), "--withheld", "-o", "json")
    assert {each["workload"] for each in json.loads(of_one.stdout)} == {"one"}
