"""What is on the disk is a whole checkpoint or none, whatever happened while it was written."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.searching import examples

from slopewise_exporter.checkpoint_files import CheckpointFolder, TornCheckpoint, mark_of, read_manifest
from slopewise_exporter.record import Progress


class Told:
    """What was passed over, and why."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def __call__(self, manifest: Path, why: str) -> None:
        self.lines.append(f"{manifest.name}: {why}")


def _put(contents: bytes, path: Path) -> None:
    path.write_bytes(contents)


def write(folder: CheckpointFolder, text: str, steps: int = 0) -> None:
    folder.write(partial(_put, text.encode()), Progress(steps))


def make_unreadable(path: Path) -> None:
    """Reading it is an OSError that does not say that nothing is there, for root too."""
    path.unlink()
    path.mkdir()


def text_of(folder: CheckpointFolder, told: Told | None = None) -> str | None:
    found = folder.newest(told or Told())
    return None if found is None else found.path.read_text()


@pytest.fixture
def folder(tmp_path: Path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path, ".data", keep=2)


def reopened(path: Path) -> CheckpointFolder:
    """The folder as the next life of the training sees it."""
    return CheckpointFolder(path, ".data", keep=2)


def test_the_newest_is_found_with_its_progress(folder: CheckpointFolder, tmp_path: Path) -> None:
    write(folder, "first", 5)
    saved = folder.write(partial(_put, b"second"), Progress(9, samples=72.0, epochs=3))
    found = reopened(tmp_path).newest(Told())
    assert found is not None
    assert (found.path.read_text(), found.progress) == ("second", saved)
    assert (found.progress.steps, found.progress.samples, found.progress.epochs) == (9, 72.0, 3)


def test_only_the_newest_are_kept(folder: CheckpointFolder, tmp_path: Path) -> None:
    for number in range(5):
        write(folder, str(number))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "00000004.data",
        "00000004.json",
        "00000005.data",
        "00000005.json",
    ]


def test_saves_of_a_training_that_began_anew_are_newer_than_those_of_the_old_one(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    write(folder, "old", 5000)
    anew = reopened(tmp_path)
    write(anew, "new", 3)
    assert text_of(reopened(tmp_path)) == "new"


@pytest.mark.parametrize(
    ("left", "why"),
    [
        ("", "has 0 bytes, and 5 were written"),
        ("tor", "has 3 bytes, and 5 were written"),
        ("toRn!", "has other contents than were written"),
        (None, "is missing"),
    ],
    ids=["empty", "cut short", "changed", "gone"],
)
def test_one_that_is_damaged_is_told_and_the_one_before_is_used(
    folder: CheckpointFolder, tmp_path: Path, left: str | None, why: str
) -> None:
    write(folder, "whole")
    write(folder, "torn!")
    data, told = tmp_path / "00000002.data", Told()
    data.unlink() if left is None else data.write_text(left)
    assert text_of(reopened(tmp_path), told) == "whole"
    assert told.lines == [f"00000002.json: 00000002.data {why}"]


@pytest.mark.parametrize(
    "manifest",
    ["", "{", "[]", "null", "{}", '{"format": 2}', '{"format": 1, "files": {"x": 3}, "progress": {}}', "\x00" * 64],
)
def test_a_foreign_manifest_is_told_and_passed_over(folder: CheckpointFolder, tmp_path: Path, manifest: str) -> None:
    write(folder, "whole")
    (tmp_path / "00000002.json").write_text(manifest)
    told = Told()
    assert text_of(reopened(tmp_path), told) == "whole"
    assert len(told.lines) == 1
    assert told.lines[0].startswith("00000002.json: ")


@pytest.mark.parametrize("name", ["00000001.json", "00000001.data"])
def test_one_that_cannot_be_read_is_an_error_where_no_other_is_whole(
    folder: CheckpointFolder, tmp_path: Path, name: str
) -> None:
    write(folder, "x" * (tmp_path.stat().st_size))
    make_unreadable(tmp_path / name)
    if name.endswith(".data"):  # its size is looked at before it is read
        manifest = json.loads((tmp_path / "00000001.json").read_text())
        manifest["files"][name]["bytes"] = (tmp_path / name).stat().st_size
        (tmp_path / "00000001.json").write_text(json.dumps(manifest))
    told = Told()
    with pytest.raises(IsADirectoryError):
        reopened(tmp_path).newest(told)
    assert len(told.lines) == 1


def test_one_that_cannot_be_read_is_told_and_passed_over_where_another_is_whole(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    write(folder, "whole")
    write(folder, "unread")
    make_unreadable(tmp_path / "00000002.json")
    told = Told()
    assert text_of(reopened(tmp_path), told) == "whole"
    assert "Is a directory" in told.lines[0]


def test_one_of_a_newer_version_is_an_error_where_no_other_is_whole(folder: CheckpointFolder, tmp_path: Path) -> None:
    write(folder, "state")
    manifest = tmp_path / "00000001.json"
    manifest.write_text(manifest.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(OSError, match="it has format 2, and this version reads 1"):
        reopened(tmp_path).newest(Told())


def test_data_without_a_manifest_are_no_checkpoint_and_go_with_the_next_save(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    write(folder, "whole")
    (tmp_path / "00000002.data").write_text("killed before its manifest")
    again = reopened(tmp_path)
    assert text_of(again) == "whole"
    write(again, "next")
    assert text_of(reopened(tmp_path)) == "next"
    assert "killed before its manifest" not in [path.read_text() for path in tmp_path.glob("*.data")]


def test_drafts_of_a_life_that_was_killed_are_removed(folder: CheckpointFolder, tmp_path: Path) -> None:
    write(folder, "whole")
    (tmp_path / ".slopewise-0123.data").write_text("half")
    (tmp_path / ".slopewise-4567.data").mkdir()
    (tmp_path / ".slopewise-4567.data" / "shard").write_text("half")
    reopened(tmp_path).prepare()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00000001.data", "00000001.json"]


def test_torn_ones_do_not_count_among_those_that_are_kept(folder: CheckpointFolder, tmp_path: Path) -> None:
    write(folder, "whole")
    write(folder, "torn")
    (tmp_path / "00000002.data").write_text("")
    again = reopened(tmp_path)
    text_of(again)
    write(again, "next")
    assert sorted(path.read_text() for path in tmp_path.glob("*.data")) == ["next", "whole"]


def test_other_files_in_the_folder_are_left_alone(folder: CheckpointFolder, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("mine")
    for _ in range(3):
        write(folder, "state")
    assert (tmp_path / "config.json").exists()
    assert (tmp_path / "notes.txt").exists()


def test_a_save_that_raises_leaves_everything_as_it_was(folder: CheckpointFolder, tmp_path: Path) -> None:
    write(folder, "whole")
    before = sorted(path.name for path in tmp_path.iterdir())

    def half(path: Path) -> None:
        path.write_text("half")
        raise MemoryError

    with pytest.raises(MemoryError):
        folder.write(half, Progress(2))
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert text_of(reopened(tmp_path)) == "whole"


def test_a_save_that_writes_nothing_is_an_error_and_no_checkpoint(folder: CheckpointFolder, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        folder.write(lambda path: None, Progress(1))
    assert not folder.any()


def test_a_save_that_makes_a_folder_is_an_error_that_says_so_and_leaves_nothing_behind(
    folder: CheckpointFolder, tmp_path: Path
) -> None:
    def save_shards(path: Path) -> None:
        path.mkdir()
        (path / "shard").write_text("part of the state")

    with pytest.raises(OSError, match="sharded checkpoints are not supported"):
        folder.write(save_shards, Progress(1))
    folder.discard(save_shards)
    assert list(tmp_path.iterdir()) == []


def test_an_old_one_that_cannot_be_removed_is_told_and_the_new_one_counts(
    folder: CheckpointFolder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "00000001.json").mkdir()  # whoever unlinks it gets an OSError
    write(folder, "new", 7)
    assert text_of(reopened(tmp_path)) == "new"
    assert "cannot be removed" in caplog.text


@examples(40)  # each waits for the disk three times
@given(contents=st.binary(max_size=200), changed=st.binary(max_size=200))
def test_a_manifest_holds_exactly_for_the_bytes_that_were_written(
    tmp_path_factory: pytest.TempPathFactory, contents: bytes, changed: bytes
) -> None:
    path = tmp_path_factory.mktemp("folder")
    folder = CheckpointFolder(path, ".data", keep=1)
    folder.write(partial(_put, contents), Progress(1))
    manifest = path / "00000001.json"
    assert read_manifest(manifest, path).steps == 1
    (path / "00000001.data").write_bytes(changed)
    if changed != contents:
        with pytest.raises(TornCheckpoint):
            read_manifest(manifest, path)


def test_a_mark_is_that_of_the_whole_file_however_large(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"0123456789" * 300_000)
    (tmp_path / "other").write_bytes(b"0123456789" * 299_999 + b"012345678X")
    marks = mark_of(tmp_path / "large"), mark_of(tmp_path / "other")
    assert marks[0].bytes == marks[1].bytes == 3_000_000
    assert marks[0].crc32 != marks[1].crc32
