"""What a record does where its file fails, and how it stays within its bounds."""

from __future__ import annotations

import errno
import resource
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import ValidationError
from structlog.testing import capture_logs
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run

from slopewise.config.training_policy import Metadata, as_json
from slopewise.decision_record.files import BoundedFile, older
from slopewise.decision_record.lines import PARTS, Pass, Settings, Stored, decode
from slopewise.decision_record.reader import read
from slopewise.decision_record.recorder import Recorder, RecordOptions
from slopewise.decision_record.replay import replay
from slopewise.memory_in_process import DictionaryMemory
from slopewise.model import ClusterSnapshot, Freeze, Freezes, MemoryState, Observation, PassReport
from slopewise.ports import Ports
from slopewise.simulator.world.model import Instance


def a_few_jobs() -> Instance:
    return an_instance([a_sim_job(f"job-{n}", 120.0, 15.0 * n) for n in range(3)], [a_sim_node()], seed=1)


def lines_of(path: Path) -> list[Settings | Pass]:
    return [decode(line) for line in path.read_bytes().splitlines()]


def differing(path: Path) -> list[str]:
    return [each.where for each in replay(read(path, lambda _: None)) if each.differences]


def test_the_files_stay_in_bounds_and_the_rest_is_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, bound = tmp_path / "record.jsonl", 40_000
    reports = record_run(monkeypatch, a_few_jobs(), a_document("flowcon"), path, bound)
    longest = max(len(line) for line in path.read_bytes().splitlines())
    assert path.stat().st_size + older(path).stat().st_size <= bound + 2 * (longest + 2_000)
    left = list(read(path, lambda _: None))
    assert 2 < len(left) < len(reports), "the oldest passes are gone"
    assert [each.recorded.taken_at_seconds for each in left] == [
        report.taken_at_seconds for report in reports[-len(left) :]
    ]
    assert differing(path) == []


def test_a_restarted_controller_goes_on_in_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "record.jsonl"
    once = record_run(monkeypatch, a_few_jobs(), a_document("flowcon"), path)
    twice = record_run(monkeypatch, a_few_jobs(), a_document("flowcon2"), path)
    lines = lines_of(path)
    assert [type(line) for line in lines].count(Settings) == 2
    assert len(lines) == len(once) + len(twice) + 2
    assert differing(path) == []


class FullDisk(BoundedFile):
    """Takes half of the third line, as a disk that is full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, 10_000_000)
        self.appended = 0

    def append(self, lines: bytes) -> None:
        self.appended += 1
        if self.appended not in (3, 4):
            super().append(lines)
            return
        super().append(lines[: len(lines) // 2])
        self._bytes -= len(lines) // 2
        self._take_back()
        raise OSError(28, "No space left on device")


def test_a_full_disk_costs_lines_and_no_pass_nor_later_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("support.recorded_runs.BoundedFile", lambda path, _: FullDisk(path))
    path = tmp_path / "record.jsonl"
    with capture_logs() as logged:
        reports = record_run(monkeypatch, a_few_jobs(), a_document("flowcon"), path)
    left = list(read(path, lambda _: None))
    assert len(left) == len(reports) - 2
    assert differing(path) == []
    assert [(each["event"], each["reason"]) for each in logged] == [
        ("decision not recorded", "[Errno 28] No space left on device")
    ], "once, and not for each line"


def test_a_disk_that_takes_a_part_of_each_line_is_said_once_and_by_its_name(tmp_path: Path) -> None:
    recorder = RecordOptions(tmp_path, 1).recorder(a_document("flowcon"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # a line has more
    try:
        with capture_logs() as logged:
            for number in range(3):
                recorder(PassReport(1.0, "flowcon", {}, 21.0, held="no metrics" * number))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        recorder.close()
    assert [each["reason"] for each in logged] == ["[Errno 27] File too large"]


def test_a_line_that_a_kill_cut_off_ends_before_the_next_one_also_where_the_disk_was_full_then(tmp_path: Path) -> None:
    recorded(tmp_path, 1.0)[0].close()
    (file,) = tmp_path.iterdir()
    with file.open("ab") as cut_off:
        cut_off.write(b'{"kind":"pass","ta')
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size, hard))
    try:
        recorder, logged = recorded(tmp_path, 2.0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [each["reason"] for each in logged] == ["[Errno 27] File too large"]
    recorded(tmp_path, 3.0, recorder)[0].close()
    assert [each.recorded.taken_at_seconds for each in read(file, lambda _: None)] == [1.0, 3.0]


def test_what_cannot_be_encoded_costs_lines_and_no_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: MemoryState) -> str:
        raise ValidationError("Expected `float`, got `null`")

    monkeypatch.setattr("slopewise.decision_record.recorder.digest", refuse)
    with capture_logs() as logged:
        reports = record_run(monkeypatch, a_few_jobs(), a_document("flowcon"), tmp_path / "record.jsonl")
    assert len(reports) > 2
    assert [each["event"] for each in logged] == ["decision not recorded"]


def recorded(folder: Path, at_seconds: float, recorder: Recorder | None = None) -> tuple[Recorder, list[Any]]:
    """A recorder of this folder after one more pass, and what it logged."""
    recorder = recorder or RecordOptions(folder, 1).recorder(a_document("flowcon"))
    with capture_logs() as logged:
        recorder(PassReport(at_seconds, "flowcon", {}, 21.0, held="no metrics"))
    return recorder, logged


def test_a_second_run_does_not_write_into_the_record_of_the_first(tmp_path: Path) -> None:
    first, _ = recorded(tmp_path, 1.0)
    second, logged = recorded(tmp_path, 2.0)
    (path,) = tmp_path.iterdir()
    assert [(each["event"], each["file"]) for each in logged] == [("decision not recorded", str(path))]
    assert "another run writes this record; end it, or name another folder with --record" in logged[0]["reason"]
    recorded(tmp_path, 3.0, first)
    assert [line.taken_at_seconds for line in lines_of(path) if isinstance(line, Pass)] == [1.0, 3.0]
    first.close()
    assert recorded(tmp_path, 4.0, second)[1] == []
    assert [line.taken_at_seconds for line in lines_of(path) if isinstance(line, Pass)] == [1.0, 3.0, 4.0]
    second.close()


@pytest.mark.parametrize("moved", [True, False])
def test_a_record_that_a_person_moved_or_removed_begins_anew(tmp_path: Path, *, moved: bool) -> None:
    recorder, _ = recorded(tmp_path, 1.0)
    (path,) = tmp_path.iterdir()
    path.rename(tmp_path / "mine") if moved else path.unlink()
    assert recorded(tmp_path, 2.0, recorder)[1] == []
    recorder.close()
    assert [each.recorded.taken_at_seconds for each in read(path, lambda _: None)] == [2.0]
    assert not moved or [each.recorded.taken_at_seconds for each in read(tmp_path / "mine", lambda _: None)] == [1.0]


def test_a_full_file_of_another_run_is_not_made_the_older_one(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    first, second = BoundedFile(path, 1_000), BoundedFile(path, 20)
    first.begin()
    first.append(b"x" * 99 + b"\n")
    with pytest.raises(BlockingIOError, match="another run writes this record"):
        second.begin()
    assert list(tmp_path.iterdir()) == [path]
    first.close()
    assert second.begin()
    second.append(b"y\n")
    second.close()
    assert (older(path).read_bytes()[:1], path.read_bytes()) == (b"x", b"y\n")


def test_a_file_system_without_locks_has_records_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("slopewise.decision_record.files.fcntl.flock", no_locks)
    recorder, logged = recorded(tmp_path, 1.0)
    recorder.close()
    assert logged == []


def test_a_pass_that_could_not_observe_is_recorded_with_its_reason_whatever_the_policys_name(tmp_path: Path) -> None:
    document = a_document("flowcon").model_copy(update={"metadata": Metadata(name="../../up")})
    recorder = RecordOptions(tmp_path / "records", 1).recorder(document)
    recorder(PassReport(1.0, "flowcon", {}, 21.0, held="Prometheus does not answer"))
    recorder.close()
    (path,) = tmp_path.rglob("*.jsonl")
    assert path == tmp_path / "records" / ".._.._up.jsonl"
    settings, held = lines_of(path)
    assert isinstance(settings, Settings)
    assert isinstance(held, Pass)
    assert (held.held, held.inputs) == ("Prometheus does not answer", None)
    assert list(replay(read(path, lambda _: None))) == []


def test_memory_that_another_process_changed_between_two_passes_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    recorder = Recorder(BoundedFile(path, 1_000_000), as_json(a_document("fair")))
    memory = DictionaryMemory()
    given: Any = Ports(_Empty(), None, memory, None)  # type: ignore[arg-type]
    for state in (MemoryState(), MemoryState(nodes={}), replace(MemoryState(), classes={"mlp": ()})):
        memory.save(state)
        ports = recorder.ports(given)
        ports.memory.load()
        ports.observer.observe()
        recorder(PassReport(1.0, "fair", {}, 21.0))
    recorder.close()
    changes = [line.inputs.memory for line in lines_of(path) if isinstance(line, Pass) and line.inputs]
    assert [change.whole for change in changes] == [True, False, False]
    assert [change.classes for change in changes] == [None, None, {"mlp": ()}]


class _Empty:
    def observe(self) -> Observation:
        return Observation(ClusterSnapshot(1.0, (), ()))


def test_passes_under_a_freeze_are_replayed_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, freeze = tmp_path / "record.jsonl", Freeze("f", "Freeze", "Freeze f (all)", 1e9)
    record_run(monkeypatch, a_few_jobs(), a_document("flowcon"), path, freezes=Freezes(everywhere=freeze))
    passes = [line for line in lines_of(path) if isinstance(line, Pass)]
    decided = [each for line in passes for each in line.result.decided]
    assert {each.guard for each in decided} == {"frozen"}
    assert {line.inputs.snapshot.freezes.everywhere for line in passes if line.inputs is not None} == {freeze}
    assert differing(path) == []


def test_every_part_of_the_memory_is_in_a_record() -> None:
    parts = {field.name for field in fields(MemoryState)}
    assert parts == {"jobs", "departed", *PARTS}
    assert parts - {"arriving"} == set(Stored.__struct_fields__), "what is stored is what a pass leaves to the next one"
