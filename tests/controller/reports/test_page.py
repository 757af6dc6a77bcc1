"""A page reaches its file whole or not at all, and a place that cannot be written is found before anything starts."""

from __future__ import annotations

import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from slopewise.errors import SlopewiseError, UsageError
from slopewise.reports.page import check_writable, write_page

PAGE = "<p>200 KB</p>" * 16_000


@contextmanager
def files_limited_to(size_bytes: int) -> Iterator[None]:
    """The kernel refuses to let a file of this process grow beyond `size_bytes`, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_the_file_behind_a_link_is_written_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    link = tmp_path / "report.html"
    link.symlink_to(tmp_path / "shared" / "latest.html")

    check_writable(link)
    write_page(PAGE, link)

    assert link.is_symlink()
    assert (tmp_path / "shared" / "latest.html").stat().st_size > 100_000


def test_a_write_that_fails_half_way_keeps_the_older_report(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("older")

    with files_limited_to(100_000), pytest.raises(SlopewiseError, match="File too large"):
        write_page(PAGE, path)

    assert path.read_text() == "older"
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]


def test_a_missing_folder_is_found_before_the_demo_starts(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"the folder .*missing is missing; create it"):
        check_writable(tmp_path / "missing" / "report.html")


@pytest.mark.parametrize(
    ("path", "reported"),
    [
        ("/", "is a folder"),
        ("/dev/null", "not a regular file"),
        ("/proc/version", "cannot write to the folder|less than 8 MiB"),
        ("/" + "x" * 300, "File name too long"),
    ],
)
def test_a_path_that_can_be_no_report_is_refused_in_one_sentence(path: str, reported: str) -> None:
    with pytest.raises(SlopewiseError, match=reported) as caught:
        check_writable(Path(path))

    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


def test_a_disk_without_room_is_found_before_the_demo_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=8 * 2**20 - 1))
    with pytest.raises(SlopewiseError, match="less than 8 MiB free"):
        check_writable(tmp_path / "report.html")


def refused_as_nobody(path: Path) -> bool:
    """Asked in a child of ours, because root may write everywhere and has to become nobody first."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            check_writable(path)
            status = 0
        except UsageError as error:
            status = 1 if "this user cannot write to the folder" in str(error) else 2
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, 1), "the child found something else"
    return status == 1


@pytest.mark.parametrize(("folder_mode", "file_mode", "refused"), [(0o555, 0o666, True), (0o777, 0o444, False)])
def test_an_older_report_is_replaced_so_its_folder_decides(folder_mode: int, file_mode: int, refused: bool) -> None:
    """Not in tmp_path: pytest keeps that to its own user, and nobody could not look into it."""
    with tempfile.TemporaryDirectory() as name:
        folder, path = Path(name), Path(name) / "report.html"
        path.write_text("older")
        path.chmod(file_mode)
        folder.chmod(folder_mode)
        try:
            assert refused_as_nobody(path) is refused
        finally:
            folder.chmod(0o700)
