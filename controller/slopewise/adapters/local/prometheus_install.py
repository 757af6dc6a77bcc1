"""Finds a Prometheus on this machine, or downloads one without root and without starting a service.

The order: the PATH, the cache, the distribution's package (downloaded and unpacked, not installed), the pinned
upstream release. A binary counts only when it runs.
Of concurrent runs only the first downloads, and the others wait. The download is renamed into place at the end, so
no run finds an incomplete one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import requests
from platformdirs import user_cache_path

from slopewise.errors import MissingToolError, SlopewiseError

Announce = Callable[[str], None]
Way = Callable[[Path], Path]
"""Downloads the binaries into a work folder and returns the folder that holds them, or raises `_CannotBringError`."""

_VERSION = re.compile(r"prometheus, version (\d+\.\d+\.\d+(?:-[0-9A-Za-z.]+)?)")
_APT_SECONDS = 300
_CHUNK_BYTES = 1024 * 1024
_WORK_PREFIX = ".bringing-"

RELEASE = "3.5.0"
RELEASE_URL = (
    "https://github.com/prometheus/prometheus/releases/download/v{version}/prometheus-{version}.linux-{machine}.tar.gz"
)
RELEASE_SHA256: Mapping[str, str] = {
    "amd64": "e811827af26d822afb09a4f28314f61b618b12cff5369835a67f674d8b46f39a",
    "arm64": "173389cc42bf09c4e6e54cb53fa07a5a835d7c261e14775d2183181d6e385d1c",
}
_MACHINES: Mapping[str, str] = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}


class _CannotBringError(SlopewiseError):
    """One way to get Prometheus does not work here; the message is the reason, without a full stop."""


@dataclass(frozen=True, slots=True)
class PrometheusBinaries:
    """A Prometheus that was run once. `promtool` is None where only the server was found."""

    prometheus: Path
    promtool: Path | None
    version: str


def find_prometheus(
    cache_dir: Path | None = None,
    announce: Announce = lambda _: None,
    *,
    search_path: str | None = None,
    ways: Sequence[Way] | None = None,
) -> PrometheusBinaries:
    """A Prometheus that runs; downloaded into the cache when there is none (about 20 MB with apt, 120 MB without).

    `cache_dir` defaults to `$XDG_CACHE_HOME/slopewise` or `~/.cache/slopewise`; `search_path` to `$PATH`; `ways`
    to the package and the release. `announce` gets one message before anything is downloaded.
    MissingToolError names what to install when nothing works.
    """
    ways = (from_package, from_release) if ways is None else ways
    try:
        found = installed_prometheus(cache_dir, search_path=search_path)
        return found or _bring(cache_dir or default_cache_dir(), announce, ways)
    except OSError as error:
        where = error.filename or cache_dir or default_cache_dir()
        raise MissingToolError(
            f"{where}: Prometheus cannot be kept there ({error.strerror}); make room, set "
            "XDG_CACHE_HOME to a folder that can be written, or install Prometheus so that it is on the PATH."
        ) from error


def installed_prometheus(cache_dir: Path | None = None, *, search_path: str | None = None) -> PrometheusBinaries | None:
    """The one on the PATH or in the cache; None: there is none yet. MissingToolError for a cache of another user's."""
    on_path = shutil.which("prometheus", path=search_path)
    if on_path and (found := _accept(Path(on_path), shutil.which("promtool", path=search_path))):
        return found
    cache = cache_dir or default_cache_dir()
    _refuse_others_folder(cache)
    return _in_cache(cache)


def default_cache_dir() -> Path:
    """`$XDG_CACHE_HOME/slopewise`, else `~/.cache/slopewise`; MissingToolError when no home folder is known."""
    try:
        return user_cache_path("slopewise")
    except RuntimeError as error:
        raise MissingToolError(
            f"User {os.getuid()} has no home folder to keep Prometheus in; set HOME or XDG_CACHE_HOME to a folder "
            "that can be written, or install Prometheus so that it is on the PATH."
        ) from error


def may_run_from(path: Path, user: int) -> bool:
    """False when `user` is root and another user could replace the program at `path`, or a folder above it.

    With a `sudo` that keeps HOME, root searches the cache of the user who called it.
    """
    places = {path, path.resolve()} if user == 0 else set()
    every = {place for end in places for place in (end, *end.parents)}
    return all(place.lstat().st_uid == 0 for place in every if place.exists())


def _refuse_others_folder(cache: Path) -> None:
    if not may_run_from(cache.absolute(), os.geteuid()):
        raise MissingToolError(
            f"{cache}: belongs to another user or is in a folder of theirs, so root runs no programs from there; "
            "set XDG_CACHE_HOME to a folder of root's, or install Prometheus so that it is on the PATH."
        )


def _in_cache(cache: Path) -> PrometheusBinaries | None:
    """The newest; root ignores what another user put there, e.g. by `chown` or in a cache that all may write to."""
    found = cache.glob("prometheus-*")
    newest_first = sorted(found, key=lambda entry: [*map(int, re.findall(r"\d+", entry.name))], reverse=True)
    names, user = ("prometheus", "promtool"), os.geteuid()
    ours = (each for each in newest_first if all(may_run_from((each / name).absolute(), user) for name in names))
    accepted = (_accept(entry / "prometheus") for entry in ours)
    return next((binaries for binaries in accepted if binaries), None)


def _accept(prometheus: Path, promtool: str | None = None) -> PrometheusBinaries | None:
    """The binaries if `prometheus --version` really runs, else None: broken ones are passed over."""
    try:
        shown = _run([str(prometheus), "--version"], timeout_seconds=30)
    except _CannotBringError:
        return None
    if (match := _VERSION.search(shown)) is None:
        return None
    beside = prometheus.parent / "promtool"
    tool = Path(promtool) if promtool else beside
    return PrometheusBinaries(prometheus, tool if os.access(tool, os.X_OK) else None, match[1])


def _bring(cache: Path, announce: Announce, ways: Sequence[Way]) -> PrometheusBinaries:
    cache.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(cache):
        if found := _in_cache(cache):  # another run downloaded it while this one waited
            return found
        announce(f"Prometheus is not on the PATH: downloading it once into {cache}.")
        for left_by_a_killed_run in cache.glob(f"{_WORK_PREFIX}*"):
            shutil.rmtree(left_by_a_killed_run, ignore_errors=True)
        return _bring_first_that_works(cache, ways)


def _bring_first_that_works(cache: Path, ways: Sequence[Way]) -> PrometheusBinaries:
    reasons = []
    for way in ways:
        try:
            with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=cache, ignore_cleanup_errors=True) as work:
                return _install(way(Path(work)), cache, Path(work))
        except _CannotBringError as error:
            reasons.append(str(error))
    raise MissingToolError(
        f"Prometheus is not on the PATH and could not be brought ({'; '.join(reasons)}); install it so that "
        "`prometheus` is on the PATH, with `sudo apt-get install prometheus` or from https://prometheus.io/download/."
    )


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Wait for other runs that download one. The kernel frees the lock of a run that is killed."""
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(brought: Path, cache: Path, work: Path) -> PrometheusBinaries:
    """Move binaries that run to their place in the cache, in place of broken ones."""
    if (binaries := _accept(brought / "prometheus")) is None:
        raise _CannotBringError("the downloaded prometheus does not run on this machine")
    target = cache / f"prometheus-{binaries.version}"
    if target.exists():
        target.rename(work / "broken")
    brought.rename(target)
    promtool = target / "promtool" if binaries.promtool else None
    return replace(binaries, prometheus=target / "prometheus", promtool=promtool)


# --- ways to bring it ------------------------------------------------------------------------------------------


def from_package(work: Path) -> Path:
    """Download and unpack the distribution's package (Debian, Ubuntu), which apt checks against signed lists.

    Neither needs root: `apt-get download` writes into the current folder. Where the machine has no package
    lists, or lists that name a package which no longer exists, private lists are fetched (14 MB, once).
    """
    if not (shutil.which("apt-get") and shutil.which("dpkg-deb")):
        raise _CannotBringError("apt-get and dpkg-deb are not here")
    private = _private_lists(work)
    try:
        _download_package("prometheus", work, [])
        options: list[str] = []
    except _CannotBringError:
        options = private
        with suppress(_CannotBringError):  # the package may be in another of the sources
            _run(["apt-get", "-q", *options, "update"], timeout_seconds=_APT_SECONDS, cwd=work)
        _download_package("prometheus", work, options)
    if not (work / "usr/bin/promtool").exists():
        with suppress(_CannotBringError):  # Debian 13 and later ship it as a package of its own
            _download_package("promtool", work, options)
    return _only_binaries(work / "usr/bin", work)


def from_release(
    work: Path,
    fetch: Callable[[str, Path], None] | None = None,
    machine: str = platform.machine(),
    checksums: Mapping[str, str] = RELEASE_SHA256,
) -> Path:
    """Download the pinned release, check its SHA-256, and unpack the two binaries."""
    architecture = _MACHINES.get(machine.lower())
    if platform.system() != "Linux" or architecture is None or architecture not in checksums:
        raise _CannotBringError(f"no release is pinned for {platform.system()} on {machine}")
    archive = work / "release.tar.gz"
    (fetch or download)(RELEASE_URL.format(version=RELEASE, machine=architecture), archive)
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != checksums[architecture]:
        raise _CannotBringError(f"the downloaded release {RELEASE} has the wrong checksum {found}")
    return _unpack_release(archive, work, f"prometheus-{RELEASE}.linux-{architecture}")


def download(url: str, to: Path) -> None:
    """Fetch a file over HTTP(S), honouring the proxy variables of the environment."""
    try:
        with requests.get(url, stream=True, timeout=30) as response, to.open("wb") as file:
            response.raise_for_status()
            for chunk in response.iter_content(_CHUNK_BYTES):
                file.write(chunk)
    except requests.RequestException as error:
        raise _CannotBringError(f"{url} cannot be downloaded: {type(error).__name__}") from error


def _private_lists(work: Path) -> list[str]:
    """Options that make apt keep lists and cache in the work folder, and fetch no more than one package needs."""
    lists, cache = work / "lists", work / "apt-cache"
    for folder in (lists / "partial", cache / "archives" / "partial"):
        folder.mkdir(parents=True)
    return [
        "-o", f"Dir::State::Lists={lists}",
        "-o", f"Dir::Cache={cache}",
        "-o", "Acquire::Languages=none",
        "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
    ]  # fmt: skip


def _download_package(name: str, work: Path, options: Sequence[str]) -> None:
    """Download one package into a folder of its own and unpack it into `work`."""
    folder = Path(tempfile.mkdtemp(dir=work))
    # As root apt would switch to the user _apt, who cannot write to the work folder, and print a warning.
    _run(
        ["apt-get", "-q", "-o", "APT::Sandbox::User=root", *options, "download", name],
        timeout_seconds=_APT_SECONDS,
        cwd=folder,
    )
    for package in folder.glob("*.deb"):
        _run(["dpkg-deb", "-x", str(package), str(work)], timeout_seconds=120)


def _only_binaries(source: Path, work: Path) -> Path:
    binaries = work / "binaries"
    binaries.mkdir()
    for name in ("prometheus", "promtool"):
        if (source / name).exists():
            (source / name).rename(binaries / name)
    return binaries


def _unpack_release(archive: Path, work: Path, top: str) -> Path:
    binaries = work / "binaries"
    binaries.mkdir()
    try:
        with tarfile.open(archive) as tar:
            for name in ("prometheus", "promtool"):
                if (member := tar.extractfile(f"{top}/{name}")) is None:
                    raise _CannotBringError(f"the downloaded release holds no file {name}")
                with member, (binaries / name).open("wb") as file:
                    shutil.copyfileobj(member, file)
                (binaries / name).chmod(0o755)
    except (tarfile.TarError, KeyError, EOFError) as error:
        raise _CannotBringError(f"the downloaded release cannot be unpacked: {error}") from error
    return binaries


def _run(command: Sequence[str], *, timeout_seconds: float, cwd: Path | None = None) -> str:
    """What the command prints; _CannotBringError with its last error line when it fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=timeout_seconds, cwd=cwd,
            stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C"}, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _CannotBringError(f"{command[0]} cannot be run: {error}") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith("E:")] or done.stderr.splitlines()
        raise _CannotBringError(f"{command[0]}: {lines[0].removeprefix('E: ') if lines else 'failed'}")
    return done.stdout + done.stderr
