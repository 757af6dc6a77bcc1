"""Finding a Prometheus, and bringing one: with scripts that say they are one, and downloads that are files."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from slopewise.adapters.local import prometheus_install
from slopewise.adapters.local.prometheus_install import default_cache_dir, find_prometheus, from_release, may_run_from
from slopewise.errors import MissingToolError, SlopewiseError


def program(path: Path, *, version: str | None = "2.42.0+ds") -> Path:
    """A script that answers `--version` as Prometheus does, or one that is broken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    says = "exit 1" if version is None else f"echo 'prometheus, version {version} (branch: debian/sid)'"
    path.write_text(f"#!/bin/sh\n{says}\n")
    path.chmod(0o755)
    return path


def brings(version: str | None) -> Callable[[Path], Path]:
    def way(work: Path) -> Path:
        return program(work / "binaries" / "prometheus", version=version).parent

    return way


def entries(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir() if entry.name != ".lock")


def never(work: Path) -> Path:
    raise AssertionError("nothing had to be brought")


def test_one_on_the_path_is_used_with_its_promtool_and_version(tmp_path: Path) -> None:
    found = program(tmp_path / "bin" / "prometheus")
    tool = program(tmp_path / "bin" / "promtool")
    binaries = find_prometheus(tmp_path / "cache", search_path=str(tmp_path / "bin"), ways=[never])
    assert (binaries.prometheus, binaries.promtool, binaries.version) == (found, tool, "2.42.0")


def test_the_newest_in_the_cache_is_used(tmp_path: Path) -> None:
    for version in ("2.9.2", "2.42.0", "2.100.1"):
        program(tmp_path / f"prometheus-{version}" / "prometheus", version=version)
    binaries = find_prometheus(tmp_path, search_path="", ways=[never])
    assert (binaries.version, binaries.promtool) == ("2.100.1", None)


def test_what_is_brought_is_announced_and_found_the_next_time(tmp_path: Path) -> None:
    message: list[str] = []
    first = find_prometheus(tmp_path, message.append, search_path="", ways=[brings("3.5.0")])
    assert find_prometheus(tmp_path, message.append, search_path="", ways=[never]) == first
    assert message == [f"Prometheus is not on the PATH: downloading it once into {tmp_path}."]


def test_several_runs_that_want_one_at_the_same_time_download_it_once(tmp_path: Path) -> None:
    program(tmp_path / "prometheus-2.42.0" / "prometheus", version=None)
    program(tmp_path / ".bringing-abc" / "prometheus")  # of a killed run
    brought: list[Path] = []

    def slowly(work: Path) -> Path:
        brought.append(work)
        time.sleep(0.05)
        return brings("2.42.0")(work)

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: find_prometheus(tmp_path, search_path="", ways=[slowly]), range(4)))
    assert [one.version for one in found] == ["2.42.0"] * 4
    assert len(brought) == 1
    assert entries(tmp_path) == ["prometheus-2.42.0"]


def test_another_program_of_that_name_on_the_path_is_passed_over_and_the_cache_is_where_the_desktop_has_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    other = program(tmp_path / "bin" / "prometheus")
    other.write_text("#!/bin/sh\necho 'Prometheus the film, version 1.2.3'\n")
    binaries = find_prometheus(search_path=str(other.parent), ways=[brings("3.5.0")])
    assert binaries.prometheus == default_cache_dir() / "prometheus-3.5.0" / "prometheus"


def test_a_download_that_does_not_run_is_never_accepted(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError, match="does not run on this machine"):
        find_prometheus(tmp_path, search_path="", ways=[brings(None)])
    assert entries(tmp_path) == []


def test_without_any_way_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(MissingToolError) as caught:
        find_prometheus(tmp_path, search_path="", ways=[])
    assert "sudo apt-get install prometheus" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_reported_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MissingToolError, match=r"file.*: Prometheus cannot be kept there .*set XDG_CACHE_HOME"):
        find_prometheus(tmp_path / "file" / "cache", search_path="", ways=[brings("3.5.0")])


def test_a_user_without_a_home_folder_is_reported_in_one_sentence() -> None:
    """Asked of a process of its own, as a user that no list knows."""
    code = "from slopewise.adapters.local.prometheus_install import default_cache_dir as ask\n"
    code += "import os, slopewise.errors as e\n"
    code += "if os.getuid() == 0: os.setuid(54321)\n"
    code += "try: print(ask())\nexcept e.MissingToolError as error: print(error)"
    surroundings = {name: value for name, value in os.environ.items() if name not in ("HOME", "XDG_CACHE_HOME")}
    done = subprocess.run([sys.executable, "-c", code], env=surroundings, capture_output=True, text=True, check=True)
    if os.getuid() == 0:
        assert done.stdout.startswith("User 54321 has no home folder to keep Prometheus in; set HOME or")
    else:
        assert done.stdout.endswith("/.cache/slopewise\n")


def test_one_on_the_path_needs_no_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "prometheus")
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    assert find_prometheus(search_path=str(tmp_path / "bin"), ways=[never]).version == "2.42.0"


def given_to_nobody(path: Path) -> Path:
    """A path that is not root's: where the tests run as root it is given away, elsewhere it is the user's."""
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    return path


@pytest.mark.parametrize("others", ["home", "home/cache", "home/cache/prometheus"])
def test_root_runs_no_program_that_somebody_else_could_exchange(tmp_path: Path, others: str) -> None:
    found = program(tmp_path / "home" / "cache" / "prometheus")
    given_to_nobody(tmp_path / others)
    assert may_run_from(found, os.geteuid()) is (os.geteuid() != 0)
    assert not may_run_from(found, 0)
    (tmp_path / "link").symlink_to(found)
    assert not may_run_from(tmp_path / "link", 0)


def test_root_is_warned_that_the_cache_is_somebody_elses(tmp_path: Path) -> None:
    program(tmp_path / "cache" / "prometheus-2.42.0" / "prometheus")
    given_to_nobody(tmp_path / "cache")
    if os.geteuid() == 0:
        with pytest.raises(MissingToolError, match=r"cache: belongs to another user .*set XDG_CACHE_HOME"):
            find_prometheus(tmp_path / "cache", search_path="", ways=[never])
    else:
        assert find_prometheus(tmp_path / "cache", search_path="", ways=[never]).version == "2.42.0"


def test_root_passes_over_what_somebody_else_put_into_the_cache(tmp_path: Path) -> None:
    given_to_nobody(program(tmp_path / "prometheus-9.9.9" / "prometheus"))
    version = find_prometheus(tmp_path, search_path="", ways=[brings("3.5.0")]).version
    assert version == ("3.5.0" if os.geteuid() == 0 else "9.9.9")


def release_archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_the_pinned_release_is_fetched_checked_and_unpacked(tmp_path: Path) -> None:
    top = f"prometheus-{prometheus_install.RELEASE}.linux-arm64"
    archive = release_archive({f"{top}/{name}": name.encode() for name in ("prometheus", "promtool")})
    checksums = {"arm64": hashlib.sha256(archive).hexdigest()}
    fetched: list[str] = []

    def fetch(url: str, to: Path) -> None:
        fetched.append(url)
        to.write_bytes(archive)

    folder = from_release(tmp_path, fetch, machine="aarch64", checksums=checksums)
    assert fetched == [f"https://github.com/prometheus/prometheus/releases/download/v3.5.0/{top}.tar.gz"]
    assert (folder / "promtool").read_bytes() == b"promtool"
    assert os.access(folder / "prometheus", os.X_OK)


def fetches(content: bytes) -> Callable[[str, Path], None]:
    def fetch(url: str, to: Path) -> None:
        to.write_bytes(content)

    return fetch


@pytest.mark.parametrize("content", [b"no archive", release_archive({"other": b""})], ids=["no archive", "another one"])
def test_a_release_that_cannot_be_unpacked_or_is_not_the_pinned_one_fails(tmp_path: Path, content: bytes) -> None:
    checksums = {"amd64": hashlib.sha256(content).hexdigest()}
    with pytest.raises(SlopewiseError, match="cannot be unpacked"):
        from_release(tmp_path, fetches(content), "x86_64", checksums)
    with pytest.raises(SlopewiseError, match="no release is pinned for Linux on riscv64"):
        from_release(tmp_path, fetches(content), machine="riscv64")
    (tmp_path / "other").mkdir()
    with pytest.raises(SlopewiseError, match="wrong checksum"):
        from_release(tmp_path / "other", fetches(content), machine="x86_64")
    assert not (tmp_path / "other" / "binaries").exists()
