"""What the tests on a cluster share: the cluster itself, kubectl, and a namespace for each test.

The cluster is the one that KUBECONFIG names, else the test-bed that is up (`make cluster`). On a cluster that is not
the test-bed the tests that disturb its components or read its cgroups are skipped, and images and Prometheus are named
by variables: SLOPEWISE_TEST_IMAGE (any with Python 3), SLOPEWISE_TEST_PROMETHEUS_URL.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.cluster import Kubectl, PodShape

from slopewise.adapters.kube.client.client import KubeApi
from slopewise.adapters.kube.moves.suspend.begin import SUSPENDS_FROM
from testbed.faults import Faults
from testbed.images import BASE_IMAGE
from testbed.settings import Settings, read_settings

PUBLIC_IMAGE = "docker.io/library/python:3.13-slim-bookworm"


@pytest.fixture(scope="session")
def kubeconfig() -> Path:
    """Of the cluster under test."""
    if given := os.environ.get("KUBECONFIG"):
        return Path(given)
    if (path := read_settings().kubeconfig).exists():
        return path
    pytest.skip("there is no cluster: run `make cluster`, or point KUBECONFIG at one of yours")


@pytest.fixture(scope="session")
def testbed_settings(kubeconfig: Path) -> Settings:
    """Of the test-bed, for what only it allows; skipped on other clusters."""
    settings = read_settings()
    if not settings.kubeconfig.exists() or kubeconfig.resolve() != settings.kubeconfig.resolve():
        pytest.skip("this cluster is not the test-bed, so its components and cgroups are not ours")
    return settings


@pytest.fixture(scope="session")
def faults(testbed_settings: Settings) -> Faults:
    """Stops, kills and restarts components. A test that uses it puts back what was disturbed."""
    return Faults(testbed_settings)


@pytest.fixture(scope="session")
def kubectl(kubeconfig: Path) -> Kubectl:
    """With an administrator's rights."""
    ours = read_settings().kubectl
    program = str(ours) if ours.exists() else shutil.which("kubectl")
    if program is None:
        pytest.skip("kubectl is not on the PATH")
    found = Kubectl(program, kubeconfig)
    found.run("version")
    return found


@pytest.fixture(scope="session")
def server_version(kubeconfig: Path) -> tuple[int, int]:
    """Major and minor of the API server, e.g. (1, 36)."""
    api = KubeApi.connect(kubeconfig=str(kubeconfig))
    try:
        return api.server_version()
    finally:
        api.close()


@pytest.fixture(scope="session")
def jobs_can_be_suspended(server_version: tuple[int, int]) -> bool:
    """Whether moves suspend plain Jobs here; else all Jobs are evicted, and only those with a gate are moved."""
    return server_version >= SUSPENDS_FROM


@pytest.fixture(scope="session")
def needs_suspending(server_version: tuple[int, int], jobs_can_be_suspended: bool) -> None:
    """For tests of moves that suspend Jobs: skipped where the API server is too old for them."""
    if not jobs_can_be_suspended:
        first, found = (".".join(map(str, version)) for version in (SUSPENDS_FROM, server_version))
        pytest.skip(f"the template of a suspended Job can be changed from {first} on; this server is {found}")


@pytest.fixture
def namespace(kubectl: Kubectl) -> Iterator[str]:
    """A labelled namespace that is this test's alone; it goes with all that is in it."""
    with kubectl.own_namespace() as name:
        yield name


@pytest.fixture(scope="session")
def image(kubeconfig: Path) -> str:
    """An image with Python 3 that the nodes can run; on the test-bed with numpy and prometheus_client."""
    on_testbed = kubeconfig.resolve() == read_settings().kubeconfig.resolve()
    return os.environ.get("SLOPEWISE_TEST_IMAGE") or (BASE_IMAGE if on_testbed else PUBLIC_IMAGE)


@pytest.fixture(scope="session")
def idle(image: str) -> PodShape:
    """A pod that waits, 250m to 500m of CPU; tests make theirs of it with `dataclasses.replace`."""
    return PodShape(image)


@pytest.fixture(scope="session")
def prometheus_url(kubeconfig: Path) -> str:
    """Of the Prometheus that scrapes the cluster, as this machine reaches it."""
    if given := os.environ.get("SLOPEWISE_TEST_PROMETHEUS_URL"):
        return given
    settings = read_settings()
    if kubeconfig.resolve() != settings.kubeconfig.resolve():
        pytest.skip("SLOPEWISE_TEST_PROMETHEUS_URL is not set, and this cluster is not the test-bed")
    return settings.prometheus_url
