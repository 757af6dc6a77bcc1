"""The command line as a user meets it: one sentence for a mistake, the right exit code."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.api_server import ApiServer
from support.command_line import slopewise, slopewise_process
from support.fake_prometheus import FakePrometheus
from support.loopback import send
from support.waiting import eventually

from slopewise import __version__
from slopewise.policies import names

POLICIES = [name.replace("_", "-") for name in names()]


def message_of(result: subprocess.CompletedProcess[str], exit_code: int) -> str:
    assert result.returncode == exit_code, result.stderr
    assert result.stdout == ""
    lines = result.stderr.strip().splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


def json_lines(text: str) -> list[dict[str, object]]:
    """Every line, each of which is one JSON object."""
    return [json.loads(line) for line in text.splitlines()]


def test_version() -> None:
    assert slopewise_process("--version").stdout.strip() == __version__


def test_a_command_line_that_only_asks_for_help_loads_no_data_of_a_pass_and_no_client() -> None:
    loaded = (
        "import sys, slopewise.commands.app; print(sorted({'slopewise.model', 'numpy', 'requests'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_help_of_every_command_starts_with_what_it_does_and_has_an_example() -> None:
    for command in (
        "demo",
        "run",
        "restore",
        "sweep",
        "history",
        "policies",
        "simulate",
        "advise",
        "replay",
        "explain",
    ):
        assert "xample" in slopewise(command, "--help").stdout


def test_policies_prints_every_policy_with_unit_default_bounds_and_source() -> None:
    printed = json.loads(slopewise("policies", "-o", "json").stdout)
    assert [policy["name"] for policy in printed] == POLICIES
    flowcon = next(policy for policy in printed if policy["name"] == "flowcon")
    alpha = next(each for each in flowcon["parameters"] if each["name"] == "alpha")
    assert (alpha["default"], alpha["bounds"]) == (0.05, "> 0, ≤ 1")
    assert "thesis" in alpha["source"]
    assert alpha["unit"]


def test_a_policy_file_with_a_mistake_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("spec: {policy: {name: flowcon, parameters: {alpha: 7}}}")
    printed = message_of(slopewise("demo", "--policy-file", "p.yaml", cwd=tmp_path), 2)
    assert "p.yaml: spec.policy.parameters.alpha: must be less than or equal to 1, not 7" in printed


NO_PROMETHEUS = (
    "slopewise: no Prometheus is named; add --prometheus-url http://HOST:9090, or set PROMETHEUS_URL (in a pod, by the "
    "ConfigMap slopewise-settings); or manage this machine with --local --jobs FILE."
)
IN_A_CLUSTER = ("run", "--prometheus-url", "http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), NO_PROMETHEUS),
        (("run", "--local"), "--jobs FILE"),
        (("demo", "--policy", ""), "slopewise: there is no policy ''; use one of"),
        (("demo", "--report", "nowhere/report.html"), "nowhere"),
        (("run", "--prometheus-url", "http://me:hunter2@a"), "The URL of Prometheus holds a user, a password or a tok"),
        ((*IN_A_CLUSTER, "--prometheus-config", "nowhere"), "nowhere cannot be read (No such file or directory); give"),
        ((*IN_A_CLUSTER, "--namespace", "a"), "TrainingPolicies belong to the whole cluster and are not read; add "),
        ((*IN_A_CLUSTER, "--namespace", "Team A"), "--namespace 'Team A': cannot be the name of a namespace; write"),
        ((*IN_A_CLUSTER, "--kubeconfig", "nowhere"), "nowhere: no such kubeconfig; write its path to --kubeconfig"),
        ((*IN_A_CLUSTER, "--policy-file", "nowhere"), "nowhere: cannot be read"),
        (("restore",), "add --all; it restores the original resources of every changed pod."),
        (("restore", "--all", "--kubeconfig", "nowhere"), "nowhere: no such kubeconfig; write its path"),
        (("sweep", "--kubeconfig", "nowhere"), "nowhere: no such kubeconfig; write its path"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_sentence_before_anything_starts(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    reported = message_of(slopewise(*arguments, cwd=tmp_path), 2)
    assert message in reported
    assert "hunter2" not in reported


def test_a_prometheus_that_refuses_and_quotes_the_credentials_holds_the_pass_and_gives_no_secret_away(
    server: ApiServer, reach: tuple[str, str], tmp_path: Path
) -> None:
    prometheus = FakePrometheus()
    prometheus.respond = lambda asked: send(asked, 401, f"no: {asked.headers['Authorization']}".encode())
    (tmp_path / "http.yaml").write_text("authorization: {credentials_file: token}")
    (tmp_path / "token").write_text("hunter2-and-more")
    (tmp_path / "policy.yaml").write_text("{}")
    cluster = (*reach, "--once", "--dry-run", "--json-logs", "--policy-file", "policy.yaml")
    asked = ("--prometheus-url", prometheus.url, "--prometheus-config", "http.yaml")
    result = slopewise_process("run", *asked, *cluster, cwd=tmp_path)
    reported = repr(server.requests)
    prometheus.close()
    assert result.returncode == 4, result.stderr
    messages = [line.get("message", "") for line in json_lines(result.stderr)]
    assert f"API server: {server.url}; Prometheus: {prometheus.url}." in messages
    assert "answered 401 (no: Bearer <secret>); correct authorization in http.yaml; nothing is" in result.stderr
    assert "hunter2" not in result.stdout + result.stderr + reported


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "--json-logs", "--port", "abc"), "'--port': "),
        ((*IN_A_CLUSTER, "--json-logs", "--kubeconfig", "nowhere"), "nowhere: no such kubeconfig; write its path"),
    ],
    ids=["an option", "a cluster"],
)
def test_a_mistake_is_one_json_object_where_logs_are_to_be_json(arguments: tuple[str, ...], message: str) -> None:
    result = slopewise_process(*arguments)
    [line] = json_lines(result.stderr)
    assert (result.returncode, line["event"], line["exit_code"]) == ((2, "command failed", 2))
    assert message in str(line["message"])


def test_what_libraries_and_python_itself_write_is_json_too() -> None:
    program = """
import logging, threading, warnings
from slopewise.telemetry.log_lines import only_json_lines
only_json_lines()
logging.getLogger("urllib3").warning("connection pool is full")
logging.getLogger("urllib3").info("not for the user")
warnings.warn("this is old", stacklevel=1)
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()
raise ValueError("not caught")
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    library, warning, thread, main = json_lines(result.stderr)
    assert (library["logger"], library["message"]) == ("urllib3", "connection pool is full")
    assert "this is old" in str(warning["message"])
    assert "ZeroDivisionError" in str(thread["exception"])
    assert "not caught" in str(main["exception"])


def test_the_controller_of_a_cluster_ends_well_when_it_is_asked_to(server: ApiServer, reach: tuple[str, str]) -> None:
    command = [sys.executable, "-m", "slopewise", *IN_A_CLUSTER, *reach, "--port", "0", "--json-logs"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert eventually(lambda: server.asked("POST", "leases$"))
    process.send_signal(signal.SIGTERM)
    _, reported = process.communicate(timeout=60)
    lease = server.get("/apis/coordination.k8s.io/v1/namespaces/slopewise-system/leases/slopewise-controller")
    assert process.returncode == 0, reported
    assert "stopping" in [line["event"] for line in json_lines(reported)]
    assert lease["spec"]["holderIdentity"] == ""


def test_restore_prints_what_it_did_as_json_to_stdout_alone(reach: tuple[str, str]) -> None:
    result = slopewise("restore", "--all", *reach, "-o", "json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)["complete"] is True
