import csv
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from testbed.identities import ADMINISTRATOR, PROMETHEUS, Identities
from testbed.settings import API_ADDRESS, NODES, Settings


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = tmp_path_factory.mktemp("identities")
    return Settings(run_folder=folder / "run", cache_folder=folder / "cache")


@pytest.fixture(scope="module")
def identities(settings: Settings) -> Identities:
    made = Identities(settings)
    made.make()
    return made


def test_the_servers_certificate_is_good_for_the_address_that_pods_use(identities: Identities) -> None:
    command = ["openssl", "verify", "-CAfile", str(identities.authority), "-verify_ip", API_ADDRESS]

    done = subprocess.run([*command, str(identities.server_certificate)], check=False, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr


def test_each_kubelet_has_a_token_of_its_own_in_the_group_of_nodes(identities: Identities) -> None:
    rows = {row[1]: row for row in csv.reader(identities.tokens.read_text().splitlines())}

    assert {row[3] for user, row in rows.items() if user.startswith("system:node:")} == {"system:nodes"}
    assert len({row[0] for row in rows.values()}) == len(rows)
    assert {f"system:node:{node.name}" for node in NODES} <= rows.keys()


def test_prometheus_is_no_administrator(identities: Identities) -> None:
    groups = {row[1]: row[3] for row in csv.reader(identities.tokens.read_text().splitlines())}

    assert groups[ADMINISTRATOR] == "system:masters"
    assert groups[PROMETHEUS] == ""


def test_the_administrators_kubeconfig_is_where_the_settings_say(identities: Identities, settings: Settings) -> None:
    found = yaml.safe_load(settings.kubeconfig.read_text())

    assert found["clusters"][0]["cluster"]["server"] == settings.api_url
    assert found == json.loads(identities.kubeconfig(ADMINISTRATOR).read_text())


def test_no_other_user_can_read_the_keys(identities: Identities) -> None:
    folder: Path = identities.tokens.parent

    assert folder.stat().st_mode & 0o077 == 0
