import pytest

from slopewise.errors import UsageError
from testbed.machine import require_root
from testbed.settings import DEFAULT_KUBERNETES_VERSION, read_settings


def test_without_variables_it_is_the_default_release() -> None:
    assert read_settings({}).kubernetes_version == DEFAULT_KUBERNETES_VERSION


def test_one_variable_chooses_another_release() -> None:
    assert read_settings({"KUBERNETES_VERSION": "v1.35.4"}).kubernetes_version == "1.35.4"


@pytest.mark.parametrize("version", ["1.36", "latest", "1.36.3; rm -rf /", "../1.36.3"])
def test_what_is_no_release_is_refused_with_an_example(version: str) -> None:
    with pytest.raises(UsageError, match=r"KUBERNETES_VERSION: .* write it as 1\.36\.3"):
        read_settings({"KUBERNETES_VERSION": version})


@pytest.mark.parametrize("seconds", [0.0, 0.5, 61.0, float("nan")])
def test_a_scrape_interval_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="out of range; give 1 to 60"):
        read_settings({}, scrape_interval_seconds=seconds)


def test_anybody_but_root_is_shown_what_to_do_instead() -> None:
    with pytest.raises(UsageError, match="run it with sudo, or point KUBECONFIG at a cluster") as caught:
        require_root(1000)
    assert caught.value.exit_code == 2
