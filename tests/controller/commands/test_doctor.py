"""`slopewise doctor` against an API server and a real Prometheus: what is wrong, in one line, with the remedy."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from support.api_server import ApiServer, refusal
from support.backfilled_prometheus import KUBELET, Series, Value, backfilled
from support.command_line import slopewise
from support.gated_pods import Stage
from support.managed_pods import PODS
from support.stored import condition, put_growth, put_lease

from slopewise.adapters.kube.cache.records import API_VERSION
from slopewise.adapters.kube.client.protocol import path_of
from slopewise.adapters.local.crash_journal import default_state_dir
from slopewise.adapters.local.prometheus_server import PrometheusBinaries

NAMESPACE = "team-a"
Found = Mapping[str, list[tuple[str, str]]]
"""Verdict and line of each finding, by its check."""


def put_healthy(server: ApiServer) -> None:
    """A leader, a policy, nodes and a pod: nothing is wrong."""
    put_lease(server)
    put_policy(server)
    stage = Stage(server)
    stage.put_pod("train-0")


def put_policy(server: ApiServer, **spec: Any) -> None:
    spec = {"mode": "Auto", "policy": {"name": "flowcon"}, **spec}
    server.put(f"/apis/{API_VERSION}/trainingpolicies", {"metadata": {"name": "default"}, "spec": spec})


def put_oversubscribing(server: ApiServer, name: str, oversubscribes: str, message: str) -> None:
    reported = condition("Oversubscribes", oversubscribes, "StepsCostMore", message)
    put_growth(server, name, state="Training", conditions=[reported])


def put_kubelet(server: ApiServer, name: str, version: str) -> None:
    status = {"nodeInfo": {"kubeletVersion": version}, "conditions": [{"type": "Ready", "status": "True"}]}
    server.put("/api/v1/nodes", {"metadata": {"name": name}, "status": status})


def found(reach: tuple[str, ...], *more: str, code: int = 0) -> Found:
    """What it finds; the table and JSON say the same."""
    ended = slopewise("doctor", *reach, *more, "-o", "json")
    assert ended.returncode == code, ended.stdout + ended.stderr
    by_check: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(ended.stdout):
        text = f"{each['text']}; {each['remedy']}" if each["remedy"] else each["text"]
        by_check.setdefault(each["check"], []).append((each["verdict"], text))
    return by_check


def put_alerts(server: ApiServer, *, option: bool = True, service: bool = True, **slices: Any) -> None:
    """A controller that takes alerts, its Service, and what the Service leads to."""
    args = ["--alert-token-file=/etc/slopewise-alerts/token"] if option else []
    template = {"spec": {"containers": [{"name": "controller", "args": args}]}}
    deployment = {"metadata": {"name": "slopewise-controller"}, "spec": {"template": template}}
    server.put(path_of("apps/v1", "deployments", "slopewise-system"), deployment)
    if service:
        spec = {"ports": [{"port": 8080, "targetPort": "http"}]}
        server.put(
            path_of("v1", "services", "slopewise-system"), {"metadata": {"name": "slopewise-alerts"}, "spec": spec}
        )
    labels = {"kubernetes.io/service-name": "slopewise-alerts"}
    metadata = {"name": "slopewise-alerts-x", "labels": labels}
    server.put(path_of("discovery.k8s.io/v1", "endpointslices", "slopewise-system"), {"metadata": metadata, **slices})


@pytest.fixture
def server(server: ApiServer) -> ApiServer:
    put_healthy(server)
    return server


class TestTheWayOfAlerts:
    READY = {"conditions": {"ready": True}}
    PORT = {"name": "alerts", "port": 8080}

    def test_leads_over_the_service_to_the_port_of_pods_that_are_ready(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        put_alerts(server, endpoints=[self.READY, {"conditions": {"ready": False}}], ports=[self.PORT])
        [(verdict, line)] = found(reach)["alerts"]
        expected = "http://slopewise-alerts.slopewise-system.svc:8080/alerts leads to 1 ready pod"
        assert (verdict, line) == ("ok", expected)

    @pytest.mark.parametrize(
        ("world", "expected"),
        [
            ({"service": False}, "there is no Service slopewise-system/slopewise-alerts: none arrives; apply"),
            ({"option": False}, "leads to a controller without --alert-token-file; apply"),
            ({"endpoints": [], "ports": [PORT]}, "leads to no ready pod: no alert arrives; see whether"),
            ({"endpoints": [READY], "ports": [{"name": "alerts"}]}, "leads to no port of its pods; name"),
        ],
        ids=["no service", "no option", "no endpoint", "no port"],
    )
    def test_where_it_ends_is_a_failure_with_a_remedy(
        self, server: ApiServer, reach: tuple[str, str], world: dict[str, Any], expected: str
    ) -> None:
        put_alerts(server, **world)
        [(verdict, line)] = found(reach, code=1)["alerts"]
        assert verdict == "failed"
        assert expected in line

    def test_says_nothing_where_no_alert_is_taken_and_services_may_not_be_read(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        server.fault(refusal(403, "Forbidden", "no right"), path="/services/")
        assert "alerts" not in found(reach)


class TestCluster:
    def test_of_a_healthy_cluster_every_line_is_ok(self, server: ApiServer, reach: tuple[str, str]) -> None:
        ended = slopewise("doctor", *reach)
        lines = ended.stdout.splitlines()
        assert ended.returncode == 0, ended.stdout
        assert [line.split()[0] for line in lines] == ["ok"] * (len(lines) - 1) + ["unchecked"]
        checks = [line[12:24].strip() for line in lines]
        assert checks == ["API server", "clocks", "policies", "leader", "rights", "kubelets", "pods", "Prometheus"]
        assert "no Prometheus is named" in lines[-1]
        assert {request.method for request in server.requests} == {"GET", "POST"}, "it changes nothing"
        posted = {request.path.rpartition("/")[2] for request in server.asked("POST")}
        assert posted == {"subjectaccessreviews"}

    def test_a_server_that_does_not_answer_ends_with_4(self, server: ApiServer, reach: tuple[str, str]) -> None:
        server.stop()
        lines = found(reach, code=4)
        assert lines["API server"][0][0] == "unreachable"
        assert "connection refused" in lines["API server"][0][1]
        assert set(lines) == {"API server", "Prometheus"}, "nothing else is asked of it"
        server.restart()

    def test_an_old_server_and_an_old_kubelet_cannot_resize(self, server: ApiServer, reach: tuple[str, str]) -> None:
        server.minor_version = "34+"
        put_kubelet(server, "node-b", "v1.33.2")
        put_kubelet(server, "node-c", "v1.36.0")
        lines = found(reach, code=1)
        assert lines["resize"] == [
            ("failed", "Kubernetes 1.34 does not resize pods in place; update it to 1.35 or later")
        ]
        assert lines["kubelets"] == [
            ("failed", "node-b: kubelet v1.33.2 does not resize pods in place; update it to 1.35 or later")
        ]

    @pytest.mark.parametrize(
        ("ahead", "verdict", "code", "text"),
        [
            (1.0, "ok", 0, "the API server's clock is this machine's to within 5 s"),
            (20.0, "note", 0, "the API server's clock is 20 s ahead of this machine's; synchronise both"),
            (-300.0, "failed", 1, "the API server's clock is 300 s behind this machine's; synchronise both"),
        ],
    )
    def test_the_clock_of_the_server(
        self, ahead: float, verdict: str, code: int, text: str, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        server.clock_ahead_seconds = ahead
        line = found(reach, code=code)["clocks"][0]
        assert line[0] == verdict
        # The date is in whole seconds.
        assert re.sub(r"\b(19|21|299|301) s", f"{abs(ahead):.0f} s", line[1]).startswith(text)

    def test_rights_that_are_missing_are_named_with_the_remedy(self, server: ApiServer, reach: tuple[str, str]) -> None:
        scaled = ("watch", "autoscaling", "horizontalpodautoscalers")
        server.denied = {("patch", "", "pods/resize"), scaled, ("update", *LEASES)}
        account = "system:serviceaccount:slopewise-system:slopewise-controller"
        apply = "apply manifests/cluster and manifests/base"
        without = "jobs that are scaled by CPU are resized too"
        assert found(reach, code=1)["rights"] == [
            ("failed", f"{account} may not patch pods/resize, update leases; {apply}"),
            ("note", f"{account} may not watch horizontalpodautoscalers, so {without}; {apply}"),
        ]

    def test_rights_of_moves_count_where_a_policy_moves(self, server: ApiServer, reach: tuple[str, str]) -> None:
        server.denied = {("create", "", "pods/eviction")}
        assert [verdict for verdict, _ in found(reach)["rights"]] == ["ok"]
        put_policy(server, migration={"enabled": True})
        verdict, text = found(reach, code=1)["rights"][0]
        assert verdict == "failed"
        assert text.endswith("may not create pods/eviction, so jobs are not moved; apply manifests/components/moves")

    def test_who_may_review_no_others_has_their_own_account_reviewed(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        server.fault(refusal(403, "Forbidden", "cannot create"), path="/subjectaccessreviews$")
        assert found(reach)["rights"][0][1].startswith("your own account has all ")
        assert len(server.asked("POST", "/subjectaccessreviews$")) == 1, "it is refused once"

    def test_in_one_namespace_nothing_of_the_cluster_is_asked_for(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        lines = found((*reach, "--namespace", NAMESPACE, "--lease-namespace", "slopewise-system"))
        assert "kubelets" not in lines
        assert not server.asked("GET", "/nodes")
        reviewed = [each.body["spec"]["resourceAttributes"] for each in server.asked("POST")]
        assert {each["namespace"] for each in reviewed} == {NAMESPACE, "slopewise-system"}

    def test_without_policy_leader_and_pods_each_line_has_its_remedy(self, tmp_path: Path) -> None:
        with ApiServer() as empty:
            (tmp_path / "empty").write_text(empty.kubeconfig)
            lines = found(("--kubeconfig", str(tmp_path / "empty")), code=1)
        assert lines["policies"] == [("failed", "there is no TrainingPolicy; apply one (examples/cluster)")]
        assert lines["leader"][0][0] == "failed"
        assert lines["pods"] == [
            ("note", 'no managed pod is on a node; label the pods of trainings slopewise.dev/managed: "true"')
        ]

    def test_resources_that_are_not_installed_and_a_policy_that_is_wrong(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        put_policy(server, policy={"name": "flowcom"})
        verdict, text = found(reach, code=1)["policies"][0]
        assert verdict == "failed"
        assert "did you mean 'flowcon'?" in text
        server.fault(refusal(404, "NotFound", "the server could not find it"), path="/trainingpolicies")
        assert found(reach, code=1)["policies"] == [
            ("failed", "the custom resources of Slopewise are not installed; apply manifests/crds")
        ]

    def test_a_workload_that_oversubscribes_its_cpu_is_named_with_what_a_step_costs(
        self, server: ApiServer, reach: tuple[str, str]
    ) -> None:
        assert "threads" not in found(reach)
        costs = "8 threads on 1.00 cores: a step costs 4 CPU-seconds, 2 at best; set OMP_WAIT_POLICY=passive"
        put_oversubscribing(server, "train", "True", costs)
        put_oversubscribing(server, "other", "False", "")
        assert found(reach)["threads"] == [("note", f"{NAMESPACE}/train: {costs}")]
        put_oversubscribing(server, "train", "False", "")
        assert found(reach)["threads"] == [("ok", "2 workloads: none is known to oversubscribe its CPU")]
        server.fault(refusal(403, "Forbidden", "cannot list"), path="/jobgrowths$")
        assert found(reach)["threads"][0][0] == "unchecked"

    def test_what_may_not_be_read_is_said_not_to_be_checked(self, server: ApiServer, reach: tuple[str, str]) -> None:
        for what in ("nodes", "pods", "leases", "trainingpolicies"):
            server.fault(refusal(403, "Forbidden", f"{what} is forbidden"), path=f"/{what}", times=9)
        lines = found(reach)
        assert {check: each[0][0] for check, each in lines.items() if each[0][0] != "ok"} == {
            "policies": "unchecked", "leader": "unchecked", "kubelets": "unchecked", "pods": "unchecked",
            "Prometheus": "unchecked",
        }  # fmt: skip


LEASES = ("coordination.k8s.io", "leases")


@pytest.fixture(scope="module")
def lines(prometheus_binaries: PrometheusBinaries, promtool: Path, tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What is found right after the last sample: a minute later all of them would be old."""
    folder = tmp_path_factory.mktemp("prometheus")
    with ApiServer() as server, backfilled(prometheus_binaries, folder, list(series())) as url:
        put_healthy(server)
        server.remove(f"{PODS}/train-0")
        for name in ("good", "unsaved", "no-volume", "silent", "absent"):
            put_pod(server, Stage(server), name, volume=name != "no-volume")
        (folder / "kubeconfig").write_text(server.kubeconfig)
        return found(("--kubeconfig", str(folder / "kubeconfig")), "--prometheus", url, code=1)


class TestPrometheus:
    def test_jobs_that_report_no_loss_are_named_with_the_cause(self, lines: Found) -> None:
        ok, *failed, unnamed = lines["series"]
        assert ok == ("ok", "3 workloads report a loss or response times")
        remedy = "write the label pod by relabelling, or name it as podLabels"
        assert unnamed == ("note", f"1 series of training_loss of the scrape job bare name no pod; {remedy}")
        texts = sorted(text for verdict, text in failed if verdict == "failed")
        assert texts[0].startswith("team-a/absent: Prometheus has no target for it; give its container a port")
        assert texts[1].startswith("team-a/silent: port 9464 answers, but has no training_loss; it has my_loss")

    def test_checkpoints_that_a_move_would_lose_are_named(self, lines: Found) -> None:
        broken = {text.partition(":")[0]: text for _, text in lines["checkpoints"]}
        assert {verdict for verdict, _ in lines["checkpoints"]} == {"failed"}
        assert set(broken) == {"team-a/absent-0, team-a/silent-0, team-a/unsaved-0", "team-a/no-volume-0"}
        unsaved = broken["team-a/absent-0, team-a/silent-0, team-a/unsaved-0"]
        assert "it reports no checkpoint: training_checkpoint_on_sigterm 1" in unsaved
        assert "it has no volume that another node can read" in broken["team-a/no-volume-0"]

    def test_containers_without_a_kubelets_figures_are_named(self, lines: Found) -> None:
        assert lines["containers"] == [
            ("note", "team-a/absent-0: Prometheus has no CPU use of it"),
        ]

    def test_the_newest_sample_shows_the_clock(self, lines: Found) -> None:
        assert lines["Prometheus"][0][0] == "ok"
        verdict, text = lines["clocks"][-1]
        assert verdict == "ok"
        assert re.fullmatch(r"the newest sample is \d+ s old", text)

    def test_a_prometheus_that_does_not_answer_ends_with_4(self, server: ApiServer, reach: tuple[str, str]) -> None:
        lines = found(reach, "--prometheus", "http://127.0.0.1:9", code=4)
        verdict, text = lines["Prometheus"][0]
        assert verdict == "unreachable"
        assert "connection refused" in text
        assert "nothing is changed" not in text
        assert "series" not in lines


def put_pod(server: ApiServer, stage: Stage, name: str, *, volume: bool) -> None:
    raw = stage.put_pod(f"{name}-0", owner=name)
    if volume:
        raw["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    raw["spec"]["terminationGracePeriodSeconds"] = 30
    server.put(path_of("v1", "pods", NAMESPACE), raw)


def series() -> Iterator[Series]:
    """What has been scraped for ten minutes, until some seconds after now."""
    start = time.time() - 600

    def of(name: str, pod: str, value: Value, **labels: str) -> Series:
        here = {"namespace": NAMESPACE, "pod": f"{pod}-0", "job": "trainers", "instance": f"{pod}:9464", **labels}
        return Series(name, here, start, 600, value, every_seconds=5.0)

    for pod in ("good", "unsaved", "no-volume"):
        yield of("training_loss", pod, lambda at: 2.0 - at / 600, stage="train")
        yield of("training_steps_total", pod, lambda at: at)
    for pod in ("good", "no-volume"):
        yield of("training_checkpoint_on_sigterm", pod, lambda _: 1.0)
    yield of("my_loss", "silent", lambda _: 1.0)
    for pod in ("good", "unsaved", "no-volume", "silent"):
        yield of("up", pod, lambda _: 1.0)
        yield of("container_cpu_usage_seconds_total", pod, lambda at: at, container="trainer", **KUBELET)
    yield Series("up", KUBELET, start, 600, lambda _: 1.0, every_seconds=5.0)
    bare = {"job": "bare", "instance": "h:1"}
    yield Series("training_loss", bare, start, 600, lambda _: 1.0, every_seconds=5.0)


class TestMachine:
    def test_all_that_a_local_run_needs_is_checked_and_nothing_is_left(self, tmp_path: Path) -> None:
        jobs = tmp_path / "jobs.yaml"
        jobs.write_text("- {name: a, command: 'true'}\n")
        before = set(default_state_dir().iterdir())
        lines = found((), "--local", "--jobs", str(jobs), "--actuator", "duty-cycle")
        assert set(lines) == {"system", "state", "CPU", "Prometheus", "jobs"}
        assert lines["jobs"] == [("ok", f"{jobs}: 1 job")]
        verdict, text = lines["CPU"][0]
        assert verdict == "note", "limits alone are coarser than shares"
        assert "as asked for" in text
        assert "Delegate=yes" in text
        assert set(default_state_dir().iterdir()) == before

    def test_a_jobs_file_that_is_wrong_is_one_line(self, tmp_path: Path) -> None:
        jobs = tmp_path / "jobs.yaml"
        jobs.write_text("- {name: a}\n")
        verdict, text = found((), "--local", "--jobs", str(jobs), "--actuator", "duty-cycle", code=1)["jobs"][0]
        assert verdict == "failed"
        assert "command" in text

    def test_the_variable_names_no_prometheus_of_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PROMETHEUS_URL", "http://127.0.0.1:9")
        assert found((), "--local", "--actuator", "duty-cycle")["Prometheus"][0][0] in ("ok", "note")
        lines = found((), "--local", "--actuator", "duty-cycle", "--prometheus", "http://127.0.0.1:9", code=4)
        assert lines["Prometheus"][0][0] == "unreachable"
