"""`slopewise advise` and `simulate --from-prometheus` as a user meets them, over a real Prometheus with a past."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.backfilled_prometheus import PastJob, Series, backfilled, node, targets
from support.command_line import slopewise
from support.fake_prometheus import EMPTY, FakePrometheus, answer
from support.pages import Page
from support.past_jobs import constant, fast, straight
from support.waiting import eventually

from slopewise.adapters.local.prometheus_server import PrometheusBinaries
from slopewise.advise.replay import default_policies
from slopewise.config.training_policy import load_training_policy
from slopewise.simulator.scenario.scenario import load_scenario

OWN_POLICY = Path(__file__).parents[2] / "support/policies/even_shares.py"
HOUR = 3600.0
HOSTILE = "<script>alert(1)</script>"
FORMULA = "=cmd|'/C calc'!A0"


@pytest.fixture(scope="module")
def url(prometheus_binaries: PrometheusBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Three trainings on two cores at the same time, one with GPUs, one alone on its node; two with hostile names."""
    start = time.time() - 10 * HOUR
    jobs = [
        PastJob("quick-0", start, 4, loss=fast, cores=0.7),
        PastJob("steady-0", start + 600, 4, loss=straight, cores=0.9, throttled=0.5, threads=64),
        PastJob("long-0", start + 1200, 5, loss=fast, cores=0.9),
        PastJob("vision-0", start, 3, loss=fast, gpus=4, gpu_use=0.2, cores=3.8, node="gpu-a", namespace="vision"),
        PastJob(HOSTILE, start, 2, loss=constant, node="node-b", namespace="odd"),
        PastJob(FORMULA, start + 3 * HOUR, 2, loss=fast, node="node-b", namespace="odd"),
    ]
    nodes = [node("node-a", 2, start, 9 * HOUR), node("node-b", 8, start, 9 * HOUR)]
    every: list[Series] = [*(each for job in jobs for each in job.series()), *targets(start, 9.9 * HOUR), *nodes]
    with backfilled(prometheus_binaries, tmp_path_factory.mktemp("prometheus"), every) as url:
        yield url


def advise(url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return slopewise("advise", "--prometheus", url, "--since", "12h", "--workers", "1", *arguments)


def message_of(result: subprocess.CompletedProcess[str], exit_code: int) -> str:
    assert (result.returncode, result.stdout) == (exit_code, ""), result.stderr
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report") / "r.html"


@pytest.fixture(scope="module")
def printed(url: str, report: Path) -> dict[str, Any]:
    result = advise(url, "-o", "json", "--report", str(report))
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


@pytest.mark.processes
class TestAHistory:
    """What is printed about it."""

    def test_totals_are_the_sums_of_the_jobs(self, printed: dict[str, Any]) -> None:
        totals, jobs = printed["totals"], printed["jobs"]
        assert totals["jobs"] == len(jobs) == 6
        for name in ("gpu_flat_hours", "cpu_held_flat_core_hours", "cpu_held_core_hours"):
            assert totals[name] == pytest.approx(sum(job[name] or 0 for job in jobs), rel=1e-4)
            assert totals[name] == pytest.approx(sum(each[name] for each in printed["namespaces"].values()), rel=1e-4)
        assert totals["gpu_hours"] == pytest.approx(12, rel=0.03)
        assert totals["oversubscribed_jobs"] == 1
        assert 0 < totals["spinning_most_core_hours"] <= 0.9 * 4.1
        assert (totals["throttled_jobs"], totals["input_bound_jobs"], totals["stalled_jobs"]) == (1, 1, 1)

    def test_the_job_that_held_most_gpu_hours_comes_first(self, printed: dict[str, Any]) -> None:
        first = printed["jobs"][0]
        assert (first["namespace"], first["pod"], first["gpus"]) == ("vision", "vision-0", 4)
        assert "input-bound" in " ".join(first["messages"])

    def test_every_policy_of_the_registry_that_gives_cpu_is_replayed_over_the_jobs_that_shared_it(
        self, printed: dict[str, Any]
    ) -> None:
        replays = printed["replays"]
        assert list(replays["policies"]) == default_policies()
        assert (replays["groups"], replays["groups_with_cpu_short"], replays["groups_replayed"]) == (1, 1, 1)
        ratios = {job["pod"]: set(job["ratio_to_fair"]) for job in printed["jobs"] if job["ratio_to_fair"]}
        assert ratios == {name: set(default_policies()) for name in ("quick-0", "steady-0", "long-0")}
        for policy in replays["policies"].values():
            ratio = policy["ratio_to_fair"]["jct_mean_seconds"]
            assert ratio["low"] <= ratio["mean"] <= ratio["high"]
            assert 0 <= policy["jobs_sooner"] + policy["jobs_later"] <= policy["jobs"] == 3

    def test_fair_sharing_is_replayed_about_as_it_was_recorded(self, printed: dict[str, Any]) -> None:
        """2.5 cores were used of 2, so the replayed jobs take a little longer than the recorded ones."""
        assert printed["replays"]["fair_error_ratio"] < 0.3

    def test_the_proposed_policy_can_be_used_as_it_is(self, printed: dict[str, Any], tmp_path: Path) -> None:
        (tmp_path / "policy.yaml").write_text(printed["training_policy"])
        policy = load_training_policy(tmp_path / "policy.yaml")
        assert (policy.spec.mode, policy.spec.resources.memory) == ("Recommend", "Requests")

    def test_csv_has_a_row_for_each_job_and_no_formula(self, url: str) -> None:
        rows = list(csv.DictReader(io.StringIO(advise(url, "-o", "csv", "--groups", "0").stdout)))
        assert len(rows) == 6
        assert {row["pod"][0] for row in rows if "cmd" in row["pod"]} == {"'"}
        assert float(rows[0]["gpu_hours"]) == pytest.approx(12, rel=0.03)

    def test_the_table_names_every_job_and_figure(self, url: str, tmp_path: Path) -> None:
        result = advise(url, "--groups", "0", "--policy-out", str(tmp_path / "p.yaml"))
        assert result.returncode == 0, result.stderr
        for text in ("vision/vision-0", "GPU-hours held while the loss was flat", "kind: TrainingPolicy", HOSTILE[:8]):
            assert text in result.stdout
        assert yaml.safe_load((tmp_path / "p.yaml").read_text())["kind"] == "TrainingPolicy"

    def test_the_report_is_one_file_in_which_names_are_text(self, printed: dict[str, Any], report: Path) -> None:
        page = Page(report.read_text())
        assert HOSTILE in page.text
        assert "alert(1)" not in "".join(page.scripts)
        assert not [value for name, value in page.attributes if name in ("src", "href")]
        for text in (
            "GPU-hours held while the loss was flat",
            "What policies would have brought",
            "kind: TrainingPolicy",
        ):
            assert text in page.text

    def test_namespaces_narrow_it(self, url: str) -> None:
        result = advise(url, "-o", "json", "--namespace", "vision", "--groups", "0")
        assert [job["pod"] for job in json.loads(result.stdout)["jobs"]] == ["vision-0"]

    def test_a_metric_that_no_job_reports_is_named_with_those_there_are(self, url: str) -> None:
        printed = message_of(advise(url, "--namespace", "odd", "--metric", "val_loss"), 2)
        assert "has no val_loss and no pod with GPUs of that time in odd" in printed

    def test_history_becomes_a_scenario_to_ask_ones_own_questions(self, url: str, tmp_path: Path) -> None:
        arguments = ["--from-prometheus", url, "--since", "12h", "--keep", "kept", "--namespace", "team"]
        shutil.copy(OWN_POLICY, tmp_path / "mine.py")
        policies = ("--policy", "flowcon", "--policy", "./mine.py")
        result = slopewise(
            "simulate", *arguments, *policies, "--seeds", "1", "--workers", "1", "-o", "json", cwd=tmp_path
        )
        assert result.returncode == 0, result.stderr
        assert list(json.loads(result.stdout)["policies"]) == ["fair", "flowcon", "mine"]
        scenario = load_scenario(str(tmp_path / "kept/recorded.yaml"))
        assert [job.name for job in scenario.spec.jobs] == ["quick-0-1", "steady-0-2", "long-0-3"]  # as they began
        assert [policy.name for policy in scenario.spec.policies] == ["flowcon", "mine"]
        again = slopewise("simulate", *arguments, cwd=tmp_path)
        assert "--keep kept is not empty" in message_of(again, 2)

    def test_ctrl_c_reports_what_was_read_and_leaves_nothing_behind(self, url: str, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "slopewise", "advise", "--prometheus", url, "--since", "12h", "--seeds", "999"]
        env = {**os.environ, "TMPDIR": str(tmp_path)}
        with subprocess.Popen(
            [*command, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
        ) as process:
            assert eventually(lambda: list(tmp_path.glob("slopewise-advise-*/*.yaml")))
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=180)
        assert process.returncode == 130, err
        printed = json.loads(out)
        assert (printed["partial"], len(printed["jobs"]), printed["replays"]["groups_replayed"]) == (True, 6, 0)
        assert "stopped by SIGINT" in err
        assert "Traceback" not in err
        assert list(tmp_path.iterdir()) == []


def test_ctrl_c_while_prometheus_is_asked_ends_it_at_once() -> None:
    prometheus = FakePrometheus()
    prometheus.respond = lambda _: prometheus.released.wait(30)
    command = [sys.executable, "-m", "slopewise", "advise", "--prometheus", prometheus.url]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert eventually(lambda: prometheus.asked)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=180)
    finally:
        prometheus.close()
    assert (process.returncode, out) == (130, "")
    assert err.startswith("slopewise: stopped by SIGINT")
    assert "Traceback" not in err


def test_a_prometheus_that_cannot_be_reached_is_exit_code_4() -> None:
    printed = message_of(slopewise("advise", "--prometheus", "http://127.0.0.1:9"), 4)
    assert printed.startswith("slopewise: Prometheus at http://127.0.0.1:9 cannot be reached (connection refused)")


@pytest.mark.parametrize(
    ("slow", "exit_code", "said"),
    [
        (True, 4, "did not answer within 1 s"),
        (False, 2, "has no training_loss and no pod with GPUs of that time; have trainings export it"),
    ],
    ids=["slow", "without any job"],
)
def test_a_prometheus_that_is_slow_or_has_no_job_ends_it_with_a_sentence(slow: bool, exit_code: int, said: str) -> None:
    prometheus = FakePrometheus()
    prometheus.respond = (lambda _: prometheus.released.wait(30)) if slow else answer(EMPTY)
    try:
        printed = message_of(slopewise("advise", "--prometheus", prometheus.url, "--timeout", "1"), exit_code)
    finally:
        prometheus.close()
    assert said in printed


AT = ("--prometheus", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("command", "arguments", "message"),
    [
        (
            "advise",
            (),
            "slopewise advise: no Prometheus is named; add --prometheus http://HOST:9090, or set PROMETHEUS",
        ),
        ("advise", (*AT, "--since", "7 days"), "--since '7 days' is not a time from 10m to 366d"),
        ("advise", (*AT, "--since", "5m"), "--since '5m' is not a time from 10m to 366d"),
        ("advise", ("--prometheus", "http://u:p@127.0.0.1:9"), "The URL of Prometheus holds a user"),
        ("advise", (*AT, "--metric", "a{}"), "'a{}' is not a metric name"),
        ("advise", (*AT, "--policy", "nope"), "there is no policy 'nope'"),
        ("advise", (*AT, "--report", "no/r.html"), "--report no/r.html: the folder"),
        ("simulate", ("--from-prometheus", "http://127.0.0.1:9", "--policy", "nope"), "there is no policy 'nope'"),
        ("simulate", ("flowcon-10", "--since", "1d"), "--since is about a history; add --from-prometheus URL"),
        (
            "simulate",
            ("flowcon-10", "--from-prometheus", "http://127.0.0.1:9"),
            "flowcon-10 says what to simulate; leave it or --from-prometheus out",
        ),
    ],
)
def test_what_cannot_be_used_is_said_before_anything_is_asked(
    command: str, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PROMETHEUS_URL", raising=False)
    assert message in message_of(slopewise(command, *arguments), 2)
