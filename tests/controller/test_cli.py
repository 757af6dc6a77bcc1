"""The command line as a user meets it: real processes, one sentence for a mistake, the right exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.api_server import ApiServer
from support.waiting import eventually

from controller import __version__
from controller.policies import names

POLICIES = [name.replace("_", "-") for name in names()]


def slopewise(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "controller", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, check=False)


def the_sentence(result: subprocess.CompletedProcess[str], exit_code: int) -> str:
    assert result.returncode == exit_code, result.stderr
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def test_version() -> None:
    assert slopewise("--version").stdout.strip() == __version__


def test_help_of_every_command_starts_with_what_it_does_and_has_an_example() -> None:
    for command in ("demo", "run", "restore", "sweep", "history", "policies"):
        assert "xample" in slopewise(command, "--help").stdout


def test_policies_prints_every_policy_with_unit_default_bounds_and_source() -> None:
    printed = json.loads(slopewise("policies", "-o", "json").stdout)
    assert [policy["name"] for policy in printed] == POLICIES
    flowcon = next(policy for policy in printed if policy["name"] == "flowcon")
    alpha = next(each for each in flowcon["parameters"] if each["name"] == "alpha")
    assert (alpha["default"], alpha["bounds"]) == (0.05, "> 0, ≤ 1")
    assert "thesis" in alpha["source"]
    assert alpha["unit"]


def test_a_policy_that_there_is_not_is_named_with_those_there_are() -> None:
    assert the_sentence(slopewise("policies", "nope"), 2) == (
        f"slopewise: there is no policy 'nope'; use one of {', '.join(POLICIES)}."
    )


def test_an_empty_policy_is_not_taken_for_the_usual_one() -> None:
    assert the_sentence(slopewise("demo", "--policy", ""), 2).startswith("slopewise: there is no policy ''; use one of")


def test_an_unknown_option_is_a_usage_error() -> None:
    assert slopewise("demo", "--nope").returncode == 2


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "spec: {polices: {}}",
            "spec.polices: unknown key; did you mean 'policy'?",
        ),
        ("spec: {resources: {cpu: {min: 2 cores}}}", "'2 cores' is not a CPU quantity; write millicores as 250m"),
        ("spec: {resources: {cpu: {min: 4, max: 1}}}", "min 4 is above max 1; swap them"),
        ("spec: {policy: {name: best}}", f"there is no policy 'best'; use one of {', '.join(POLICIES)}"),
        (
            "spec: {policy: {name: flowcon, parameters: {alpha: 7}}}",
            "spec.policy.parameters.alpha: must be less than or equal to 1, not 7",
        ),
    ],
)
def test_a_policy_file_with_a_mistake_is_refused_before_anything_starts(
    tmp_path: Path, text: str, sentence: str
) -> None:
    (tmp_path / "p.yaml").write_text(text)
    result = slopewise("demo", "--policy-file", "p.yaml", cwd=tmp_path)
    printed = the_sentence(result, 2)
    assert sentence in printed
    assert "p.yaml" in printed


def test_a_jobs_file_with_a_mistake_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "j.yaml").write_text("- {name: a, comand: python x.py}")
    assert "comand: unknown key" in the_sentence(slopewise("demo", "--jobs", "j.yaml", cwd=tmp_path), 2)


def test_a_report_that_cannot_be_written_is_told_before_five_minutes_of_training(tmp_path: Path) -> None:
    printed = the_sentence(slopewise("demo", "--report", "nowhere/report.html", cwd=tmp_path), 2)
    assert "nowhere" in printed


def test_run_without_a_prometheus_says_how_to_name_one() -> None:
    assert the_sentence(slopewise("run"), 2) == (
        "slopewise: no Prometheus is named; add --prometheus-url http://HOST:9090, or set PROMETHEUS_URL (in a pod, "
        "by the ConfigMap slopewise-settings); or manage this machine with --local --jobs FILE."
    )


IN_A_CLUSTER = ("run", "--prometheus-url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--prometheus-url", "prometheus:9090"), "'prometheus:9090' is not the URL of a Prometheus"),
        ((*IN_A_CLUSTER, "--namespace", "a"), "TrainingPolicies belong to the whole cluster and are not read; add "),
        ((*IN_A_CLUSTER, "--namespace", "Team A"), "--namespace 'Team A': cannot be the name of a namespace; write"),
        ((*IN_A_CLUSTER, "--kubeconfig", "nowhere"), "nowhere: no such kubeconfig; write its path to --kubeconfig"),
        ((*IN_A_CLUSTER, "--policy-file", "nowhere"), "nowhere: cannot be read"),
        (("restore",), "say --all; it gives every changed pod its original resources back."),
        (("restore", "--all", "--kubeconfig", "nowhere"), "nowhere: no such kubeconfig; write its path"),
        (("sweep", "--kubeconfig", "nowhere"), "nowhere: no such kubeconfig; write its path"),
    ],
)
def test_a_mistake_on_the_command_line_of_a_cluster_is_one_sentence(arguments: tuple[str, ...], sentence: str) -> None:
    assert sentence in the_sentence(slopewise(*arguments), 2)


def test_a_password_in_the_url_of_prometheus_is_not_shown(tmp_path: Path) -> None:
    with ApiServer() as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig)
        arguments = ("--kubeconfig", "kubeconfig", "--once", "--dry-run", "--json-logs")
        result = slopewise("run", "--prometheus-url", "http://me:secret@127.0.0.1:9", *arguments, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"API server: {server.url}; Prometheus: http://127.0.0.1:9." in result.stderr
    assert "There is no TrainingPolicy" in result.stderr
    assert "secret" not in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_controller_of_a_cluster_ends_well_when_it_is_told_to(tmp_path: Path, number: signal.Signals) -> None:
    with ApiServer() as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig)
        command = [sys.executable, "-m", "controller", *IN_A_CLUSTER, "--kubeconfig", "kubeconfig", "--port", "0"]
        process = subprocess.Popen([*command, "--json-logs"], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        assert eventually(lambda: server.asked("POST", "leases$"))
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
        lease = server.get("/apis/coordination.k8s.io/v1/namespaces/slopewise-system/leases/slopewise-controller")
    assert process.returncode == 0, told
    assert "stopping" in [json.loads(line)["event"] for line in told.splitlines() if line.startswith("{")]
    assert lease["spec"]["holderIdentity"] == ""


def test_restore_prints_what_it_did_as_json_to_stdout_alone(tmp_path: Path) -> None:
    with ApiServer() as server:
        (tmp_path / "kubeconfig").write_text(server.kubeconfig)
        result = slopewise("restore", "--all", "--kubeconfig", "kubeconfig", "-o", "json", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["complete"] is True


def test_run_local_without_jobs_says_what_is_missing() -> None:
    assert "--jobs FILE" in the_sentence(slopewise("run", "--local"), 2)
