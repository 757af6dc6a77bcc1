import json
from typing import Any

import pytest

from testbed.monitoring import write_configuration
from testbed.settings import Settings


@pytest.fixture
def jobs(settings: Settings) -> list[dict[str, Any]]:
    settings.run_folder.mkdir()
    write_configuration(settings)
    found: list[dict[str, Any]] = json.loads((settings.run_folder / "prometheus.json").read_text())["scrape_configs"]
    return found


def test_no_pod_can_choose_its_own_names(jobs: list[dict[str, Any]]) -> None:
    assert [job["honor_labels"] for job in jobs] == [False, False, False]


def test_pods_and_both_endpoints_of_the_kubelets_are_scraped(jobs: list[dict[str, Any]]) -> None:
    assert {job["job_name"] for job in jobs} == {"pods", "kubelet-metrics-cadvisor", "kubelet-metrics-resource"}


def test_targets_are_found_through_the_api_server_whose_certificate_is_checked(
    jobs: list[dict[str, Any]], settings: Settings
) -> None:
    for job in jobs:
        (discovery,) = job["kubernetes_sd_configs"]
        assert discovery["api_server"] == settings.api_url
        assert discovery["tls_config"].keys() == {"ca_file"}


def test_simulated_nodes_are_not_scraped(jobs: list[dict[str, Any]]) -> None:
    for job in jobs[1:]:
        drop = job["relabel_configs"][0]
        assert (drop["action"], drop["source_labels"]) == (
            "drop",
            ["__meta_kubernetes_node_label_slopewise_dev_simulated"],
        )
