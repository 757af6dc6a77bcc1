"""Other installations in the same cluster: found by their leases, as far as those may be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from support.api_server import ApiServer, refusal
from support.replicas import Town, write_policy

from slopewise.adapters.kube.connection import LEASE_NAME, Connection, other_leaders
from slopewise.manager.replica import run_cluster
from slopewise.manager.shared import ClusterOptions
from slopewise.signals import StopSignal


def a_lease(server: ApiServer, namespace: str, *, holder: str = "their-pod", age_seconds: float = 2.0) -> None:
    renewed = (datetime.now(UTC) - timedelta(seconds=age_seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    server.put(path, {"metadata": {"name": LEASE_NAME}, "spec": spec})


def test_who_leads_elsewhere_is_reported_and_our_own_lease_is_not(server: ApiServer) -> None:
    a_lease(server, "slopewise-system")
    a_lease(server, "mine")
    a_lease(server, "handed-back", holder="")
    a_lease(server, "left", age_seconds=600.0)
    assert other_leaders(server.client(), "mine") == {"slopewise-system": "their-pod"}
    assert other_leaders(server.client()).keys() == {"slopewise-system", "mine"}
    server.fault(refusal(403, "Forbidden", "cannot list leases"), path="leases")
    assert other_leaders(server.client()) == {}, "where leases may not be read nothing is known"


def test_a_controller_whose_policy_is_a_file_warns_of_one_that_would_give_back_what_it_changes(tmp_path: Path) -> None:
    kubeconfig, announced = tmp_path / "kubeconfig", list[str]()
    with Town() as town:
        kubeconfig.write_text(town.server.kubeconfig)
        a_lease(town.server, "slopewise-system")
        options = ClusterOptions(
            Connection(kubeconfig),
            town.prometheus.url,
            policy_file=write_policy(tmp_path),
            scrape_interval_seconds=0.5,
            once=True,
            lease_namespace="controllers",
        )
        assert run_cluster(options, StopSignal(), announced.append) == 0
    assert announced[1].startswith(
        "Warning: their-pod leads in namespace slopewise-system; if it manages the whole cluster"
    )
