from pathlib import Path

import pytest

from slopewise.errors import SlopewiseError
from testbed.audit import log_path
from testbed.histories.collect import collecting, limits
from testbed.settings import Settings

UID = "0f1e2d3c-0000-4000-8000-000000000001"


def a_pod(folder: Path, uid: str, **files: str) -> None:
    pod = folder / "node-a" / "kubepods" / "burstable" / f"pod{uid}"
    (pod / "container").mkdir(parents=True)
    for name, text in files.items():
        (pod / name.replace("_", ".", 1)).write_text(text)


def test_limits_of_pods_are_read_in_either_version_and_of_pods_alone(tmp_path: Path) -> None:
    a_pod(tmp_path, UID, cpu_max="50000 100000\n")
    a_pod(tmp_path, UID[:-1] + "2", cpu_max="max 100000\n")
    a_pod(tmp_path, UID[:-1] + "3", cpu_cfs_quota_us="-1\n", cpu_cfs_period_us="100000\n")
    a_pod(tmp_path, UID[:-1] + "4", cpu_cfs_quota_us="30000\n", cpu_cfs_period_us="100000\n")
    assert limits(tmp_path) == {UID: 500, UID[:-1] + "2": None, UID[:-1] + "3": None, UID[:-1] + "4": 300}


def test_only_the_part_of_the_audit_log_of_that_time_is_kept(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path)
    log_path(settings).write_text("before\n")
    with collecting(settings, tmp_path / "history") as collect:
        with log_path(settings).open("a") as log:
            log.write("meanwhile\n")
        collect()
    assert (tmp_path / "history" / "audit.log").read_text() == "meanwhile\n"


def test_a_log_that_the_api_server_has_put_away_meanwhile_is_a_gap(tmp_path: Path) -> None:
    settings = Settings(tmp_path, tmp_path)
    log_path(settings).write_text("before\n")
    with collecting(settings, tmp_path / "history") as collect:
        log_path(settings).rename(tmp_path / "audit-2026.log")
        log_path(settings).write_text("meanwhile, after 500 MiB\n")
        with pytest.raises(SlopewiseError, match="has a gap"):
            collect()
