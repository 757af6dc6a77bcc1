"""A growing file, through all that happens to logs."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
from support.following import append

from slopewise_exporter.tail.followed_file import BLOCK_BYTES, FollowedFile
from slopewise_exporter.values import Checker


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def rest_of(file: FollowedFile) -> bytes:
    """All that is there; a few reads beyond the end, since a renamed file is left only then."""
    found, quiet = b"", 0
    while quiet < 3:
        block = file.read()
        quiet = 0 if block else quiet + 1
        found += block.data if block else b""
    return found


def test_what_is_appended_is_read_once(log: Path) -> None:
    file = FollowedFile(log, Checker())
    assert file.read() is None
    for part in (b"a\n", b"half", b" line\n", b"x" * (2 * BLOCK_BYTES + 7)):
        append(log, part)
        assert rest_of(file) == part


def test_what_was_there_before_is_of_the_past(log: Path) -> None:
    append(log, b"old\n")
    os.utime(log, (1e9, 1e9))
    file = FollowedFile(log, Checker())
    first = file.read()
    append(log, b"new\n")
    second = file.read()
    assert (first and first.at_seconds, second and second.at_seconds) == (1e9, None)
    assert (first and first.begins, second and second.begins) == (True, False)


def test_a_file_that_comes_later_is_not_of_the_past(log: Path) -> None:
    file = FollowedFile(log, Checker())
    assert file.read() is None
    append(log, b"new\n")
    block = file.read()
    assert block is not None
    assert block.at_seconds is None


def test_rotation_by_renaming_loses_nothing(log: Path) -> None:
    append(log, b"1\n")
    file = FollowedFile(log, Checker())
    assert rest_of(file) == b"1\n"
    append(log, b"2\n")
    log.rename(log.with_name("train.log.1"))
    append(log, b"3\n")
    append(log.with_name("train.log.1"), b"late\n")
    assert rest_of(file) == b"2\nlate\n3\n"


def test_rotation_without_a_new_file_yet(log: Path) -> None:
    append(log, b"1\n")
    file = FollowedFile(log, Checker())
    assert rest_of(file) == b"1\n"
    log.rename(log.with_name("train.log.1"))
    assert rest_of(file) == b""
    append(log, b"2\n")
    assert rest_of(file) == b"2\n"


def test_copy_and_truncate(log: Path) -> None:
    append(log, b"first content\n")
    file = FollowedFile(log, Checker())
    rest_of(file)
    shutil.copy(log, log.with_name("train.log.1"))
    log.write_bytes(b"")
    append(log, b"next\n")
    assert rest_of(file) == b"next\n"


def test_truncation_is_seen_though_the_file_has_grown_beyond_the_old_place(log: Path) -> None:
    append(log, b"step=1 loss=3\n" * 10)
    file = FollowedFile(log, Checker())
    rest_of(file)
    log.write_bytes(b"")
    again = b"step=2 loss=2\n" * 30
    append(log, again)
    assert rest_of(file) == again


@pytest.mark.parametrize("rotated", [False, True], ids=["same file", "rotated meanwhile"])
def test_a_restarted_reader_goes_on_where_it_was(log: Path, rotated: bool) -> None:
    append(log, b"1\n2\nhal")
    file = FollowedFile(log, Checker())
    rest_of(file)
    position = json.loads(json.dumps(file.position))
    file.close()
    append(log, b"f\n")
    if rotated:
        log.rename(log.with_name("train.log.1"))
        append(log, b"3\n")
    second = FollowedFile(log, Checker())
    second.resume(position, unread_bytes=3)
    assert rest_of(second) == b"half\n" + (b"3\n" if rotated else b"")


def test_a_restarted_reader_of_another_file_reads_it_from_its_start(log: Path) -> None:
    append(log, b"1\n2\n")
    file = FollowedFile(log, Checker())
    rest_of(file)
    position = file.position
    file.close()
    log.rename(log.with_name("gone"))
    (log.with_name("gone")).unlink()
    append(log, b"new\n")
    second = FollowedFile(log, Checker())
    second.resume(position)
    assert rest_of(second) == b"new\n"


def test_a_restarted_reader_sees_that_the_file_was_truncated_meanwhile(log: Path) -> None:
    append(log, b"step=1 loss=3\n" * 10)
    file = FollowedFile(log, Checker())
    rest_of(file)
    position = file.position
    file.close()
    log.write_bytes(b"step=2 loss=2\n" * 20)
    second = FollowedFile(log, Checker())
    second.resume(position)
    assert rest_of(second) == b"step=2 loss=2\n" * 20


def test_only_the_end_of_a_log_that_is_there(log: Path) -> None:
    append(log, b"0123456789")
    file = FollowedFile(log, Checker(), last_bytes=4)
    assert rest_of(file) == b"6789"
    append(log, b"more than four")
    assert rest_of(file) == b"more than four"


def test_what_cannot_be_read_is_logged_once_and_tried_again(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    log.mkdir()
    file = FollowedFile(log, Checker())
    assert [file.read() for _ in range(3)] == [None] * 3
    log.rmdir()
    append(log, b"there\n")
    assert rest_of(file) == b"there\n"
    assert len(caplog.records) == 1


def test_only_the_end_of_a_log_begins_with_a_whole_line(log: Path) -> None:
    append(log, b"val_loss=1\nloss=2\nloss=3\n")
    for last_bytes, whole in ((20, b"loss=2\nloss=3\n"), (14, b"loss=2\nloss=3\n"), (13, b"loss=3\n")):
        assert rest_of(FollowedFile(log, Checker(), last_bytes=last_bytes)) == whole


def test_a_read_that_fails_once_does_not_read_everything_again(tmp_path: Path) -> None:
    folder, away = tmp_path / "logs", tmp_path / "away"
    folder.mkdir()
    log = folder / "train.log"
    append(log, b"1\n2\n")
    file = FollowedFile(log, Checker())
    assert rest_of(file) == b"1\n2\n"
    folder.rename(away)
    folder.touch()  # its name is that of no folder now: an OSError, as of a file system that is away
    assert rest_of(file) == b""
    folder.unlink()
    away.rename(folder)
    append(log, b"3\n")
    assert rest_of(file) == b"3\n"


def test_a_restarted_reader_passes_over_a_rotated_file_that_it_cannot_open(log: Path) -> None:
    append(log, b"1\n")
    file = FollowedFile(log, Checker())
    rest_of(file)
    position = file.position
    file.close()
    log.rename(log.with_name("train.log.2"))
    log.with_name("train.log.1").symlink_to("train.log.1")  # a loop: an OSError, as for a file of another user
    append(log, b"2\n")
    second = FollowedFile(log, Checker())
    second.resume(position)
    assert rest_of(second) == b"2\n"
