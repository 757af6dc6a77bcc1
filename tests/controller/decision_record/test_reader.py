"""Records that were cut off, damaged, or written by another version."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run

from slopewise.decision_record.reader import read
from slopewise.errors import UsageError


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "record.jsonl"
    record_run(monkeypatch, an_instance([a_sim_job("a", 100.0)], [a_sim_node()]), a_document("flowcon"), path)
    return path


def test_a_line_cut_off_at_the_end_or_by_a_restart_is_left_out(record: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(read(record, lambda _: None))
    content = record.read_bytes()
    record.write_bytes(content[: len(content) - 200])
    notices: list[str] = []
    assert list(read(record, notices.append)) == whole[:-1]
    assert notices == [f"{record}, line {len(whole) + 1}: cut off when its controller ended; left out."]
    more = record_run(monkeypatch, an_instance([a_sim_job("b", 80.0)], [a_sim_node()]), a_document("fair"), record)
    assert len(list(read(record, notices.append))) == len(whole) - 1 + len(more)
    assert len(notices) == 2


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{not json\n", "not a line of a decision record"),
        (b"\xff\xfe\n", "not a line of a decision record"),
        (b'{"kind":"other"}\n', "not a line of a decision record"),
        (b'{"kind":"pass","policy":"x"}\n', "taken_at_seconds"),
        (b'{"kind":"settings","schema":1,"slopewise":"0.0","document":{}}\n', "schema 1, written by Slopewise 0.0"),
        (b'{"kind":"settings","schema":99,"slopewise":"9.0","document":{}}\n', "schema 99, written by Slopewise 9.0"),
    ],
)
def test_another_line_that_cannot_be_read_is_named(record: Path, line: bytes, reason: str) -> None:
    lines = record.read_bytes().splitlines(keepends=True)
    record.write_bytes(b"".join([*lines[:3], line, *lines[3:]]))
    with pytest.raises(UsageError, match="line 4") as caught:
        list(read(record, lambda _: None))
    assert reason in str(caught.value)


def test_a_record_without_its_begin_is_refused(record: Path) -> None:
    record.write_bytes(b"".join(record.read_bytes().splitlines(keepends=True)[1:]))
    with pytest.raises(UsageError, match="no settings before this pass"):
        list(read(record, lambda _: None))


def test_a_file_that_is_not_there_is_named_with_what_writes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no such decision record; `slopewise run --record"):
        list(read(tmp_path / "none.jsonl", lambda _: None))
    with pytest.raises(UsageError, match="cannot be read"):
        list(read(tmp_path, lambda _: None))
