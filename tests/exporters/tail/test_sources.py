"""CSV files, event files, and run folders of MLflow and Weights & Biases, most of them recorded from the real ones."""

from __future__ import annotations

import json
import math
import os
import shutil
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from support.following import Kept, append

from slopewise_exporter.logs import LineParser, Tracker
from slopewise_exporter.tail.opening import Opening
from slopewise_exporter.tail.source import Source
from slopewise_exporter.values import Checker

SAMPLES = Path(__file__).parents[1] / "samples"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders are looked into at each poll."""
    for name in ("opening", "tensorboard_source", "mlflow_source"):
        monkeypatch.setattr(f"slopewise_exporter.tail.{name}._LOOK_SECONDS", 0.0)


def opened(path: Path, kept: Kept, **options: Any) -> Source:
    return Opening(LineParser(), Tracker(kept).take, Checker(), **options).open(str(path))


def drained(source: Source) -> Source:
    for _ in range(200):
        if not source.poll():
            break
    return source


def read(path: Path) -> Kept:
    kept = Kept()
    drained(opened(path, kept)).close()
    return kept


# recorded samples: 3 epochs of 10 steps each, a validation after each


@pytest.mark.parametrize("name", ["keras", "lightning", "transformers"])
def test_consoles(name: str) -> None:
    kept = read(SAMPLES / f"{name}.console")
    counted = {"keras": 30, "lightning": 30, "transformers": 15}  # it writes a line for each second step, and no bar
    assert (kept.steps, kept.epochs, kept.restarts) == (counted[name], 3, 0)
    assert kept.planned == (None if name == "transformers" else 30)
    assert len(kept.evaluations) >= 3
    assert kept.ended == (None if name == "keras" else "finished")


@pytest.mark.parametrize(
    ("name", "steps", "epochs", "losses"),
    [
        ("keras.csv", 3, 3, 3),  # a row for each epoch
        ("lightning-csv/metrics.csv", 29, 2, 15),
        ("lightning-events", 29, 2, 15),
        ("transformers-events", 30, 2, 15),
    ],
)
def test_csv_and_event_files(name: str, steps: int, epochs: int, losses: int) -> None:
    kept = read(SAMPLES / name)
    assert (kept.steps, kept.epochs, len(kept.losses)) == (steps, epochs, losses)
    assert (len(kept.evaluations), kept.restarts) == (3, 0)


def test_a_named_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    pipe, kept = tmp_path / "pipe", Kept()
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("step 1/3 loss=0.5\nstep 3/3 loss=0.4\n",))
    writer.start()
    source = opened(pipe, kept)  # as of `slopewise-exporter tail <(python train.py)`
    writer.join()
    while not source.ended:
        source.poll()
    assert (kept.steps, kept.planned, kept.losses) == (3, 3, [0.5, 0.4])


def test_a_run_of_weights_and_biases() -> None:
    kept = Kept()
    source = drained(opened(SAMPLES / "run-sample.wandb", kept))
    assert (kept.steps, kept.planned, len(kept.losses), len(kept.evaluations)) == (30, 30, 30, 3)
    assert [number for number, loss in enumerate(kept.losses) if math.isnan(loss)] == [17]
    assert (source.ended, source.failed) == (True, False)


@pytest.mark.parametrize("store", ["mlflow.db", "mlruns"])
def test_a_run_of_mlflow(store: str, tmp_path: Path) -> None:
    kept = Kept()
    source = drained(opened(mlflow_store(tmp_path, store), kept))
    assert (kept.steps, kept.planned, len(kept.losses), len(kept.evaluations)) == (30, 30, 30, 3)
    assert sum(math.isnan(loss) for loss in kept.losses) == 1
    assert (source.ended, source.failed) == (True, False)


def mlflow_store(folder: Path, store: str) -> Path:
    if store == "mlruns":
        shutil.copytree(SAMPLES / "mlruns", folder / "mlruns")
    else:
        with sqlite3.connect(folder / store) as database:
            database.executescript((SAMPLES / "mlflow.sql").read_text())
        database.close()
    return folder


# live: files that grow, are cut off, are written again


ANOTHER_COLUMN = "step,train_loss,val_loss\n" + "".join(f"{n},0.5,\n" for n in range(1, 11)) + "11,0.4,\n11,,0.6\n"


@pytest.mark.parametrize(
    ("again", "steps", "evaluations", "restarts"),
    [
        (ANOTHER_COLUMN, 11, [0.6], 0),
        ("step,train_loss\n1,0.4\n", 1, [], 1),
    ],
    ids=["with another column", "of another training"],
)
def test_a_csv_file_that_is_written_again(
    tmp_path: Path, again: str, steps: int, evaluations: list[float], restarts: int
) -> None:
    path, kept = tmp_path / "metrics.csv", Kept()
    source = opened(path, kept)
    path.write_text("step,train_loss\n" + "".join(f"{step},0.5\n" for step in range(1, 11)))
    drained(source)
    path.write_text(again)
    drained(source)
    assert (kept.steps, kept.losses, kept.evaluations, kept.restarts) == (
        steps,
        [0.5] * 10 + [0.4],
        evaluations,
        restarts,
    )


def test_half_a_row_waits_for_its_end(tmp_path: Path) -> None:
    path, kept = tmp_path / "metrics.csv", Kept()
    source = opened(path, kept)
    path.write_text("step,loss\n1,0.1")
    drained(source)
    assert kept.losses == []
    path.write_text("step,loss\n1,0.125\n")
    drained(source)
    assert kept.losses == [0.125]


def test_the_end_of_a_long_csv_file_is_read_with_its_header(tmp_path: Path) -> None:
    path, kept = tmp_path / "metrics.csv", Kept()
    path.write_text("step,train_loss\n" + "".join(f"{step},0.5\n" for step in range(1, 101)))
    drained(opened(path, kept, last_bytes=50))
    assert kept.steps == 100


def test_a_csv_file_without_a_known_column_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.csv").write_text("time,accuracy\n1,2\n3,4\n")
    assert read(tmp_path / "a.csv").steps == 0
    assert "no column" in caplog.text
    assert "time, accuracy" in caplog.text


def test_an_event_file_cut_off_in_a_record_goes_on_once_it_is_whole(tmp_path: Path) -> None:
    (whole_file,) = (SAMPLES / "transformers-events").glob("*.tfevents.*")
    whole = whole_file.read_bytes()
    path, kept = tmp_path / whole_file.name, Kept()
    source = opened(tmp_path, kept)
    for end in (11, 300, len(whole) // 2, len(whole) - 3, len(whole)):
        path.write_bytes(whole[:end]) if not path.exists() else append(path, whole[path.stat().st_size : end])
        drained(source)
    assert (kept.steps, len(kept.losses), kept.restarts) == (30, 15, 0)


def test_a_damaged_event_file_is_read_up_to_there_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slopewise_exporter.tail.tensorboard_source._DAMAGED_SECONDS", 0.0)
    (whole_file,) = (SAMPLES / "transformers-events").glob("*.tfevents.*")
    whole = bytearray(whole_file.read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    path = tmp_path / whole_file.name
    path.write_bytes(bytes(whole))
    kept = Kept()
    source = drained(opened(tmp_path, kept))
    assert 0 < kept.steps < 30
    drained(source)
    assert [record.message for record in caplog.records if "cut off or damaged" in record.message]


def test_a_run_file_of_weights_and_biases_in_small_pieces(tmp_path: Path) -> None:
    whole = (SAMPLES / "run-sample.wandb").read_bytes()
    path, kept = tmp_path / "run-1.wandb", Kept()
    source = opened(tmp_path, kept)
    for start in range(0, len(whole), 97):
        append(path, whole[start : start + 97])
        drained(source)
    assert (kept.steps, len(kept.losses), source.ended) == (30, 30, True)


def test_a_damaged_record_of_weights_and_biases_is_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    whole = bytearray((SAMPLES / "run-sample.wandb").read_bytes())
    whole[len(whole) // 2] ^= 0xFF
    (tmp_path / "run-1.wandb").write_bytes(bytes(whole))
    kept = read(tmp_path)
    assert (kept.steps, len(kept.losses)) == (30, 29)
    assert "damaged records" in caplog.text


def test_a_run_file_that_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run-1.wandb").write_bytes(b"loss=1\n" * 10_000)
    assert read(tmp_path / "run-1.wandb").steps == 0
    assert "no run file" in caplog.text


def test_mlflow_goes_on_to_a_newer_run(tmp_path: Path) -> None:
    kept = Kept()
    folder = mlflow_store(tmp_path, "mlflow.db")
    source = drained(opened(folder, kept))
    with sqlite3.connect(folder / "mlflow.db") as database:
        database.execute("INSERT INTO runs (run_uuid, status, start_time) VALUES ('next', 'RUNNING', 9999999999999)")
        database.execute("INSERT INTO metrics VALUES ('train_loss', 3.5, 9999999999999, 'next', 0, 0)")
    database.close()
    drained(source)
    assert (kept.steps, kept.losses[-1], source.ended) == (1, 3.5, False)


def test_a_database_that_is_none_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database" * 1000)
    kept = Kept()
    source = drained(opened(tmp_path / "mlflow.db", kept))
    (tmp_path / "mlflow.db").unlink()
    mlflow_store(tmp_path, "mlflow.db")
    drained(source)
    assert kept.steps == 30
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "name", ["keras.console", "keras.csv", "transformers-events", "run-sample.wandb", "mlflow.db", "mlruns"]
)
def test_a_restarted_reader_takes_nothing_twice(name: str, tmp_path: Path) -> None:
    path = mlflow_store(tmp_path, name) if name.startswith("ml") else SAMPLES / name
    first, second = Kept(), Kept()
    source = drained(opened(path, first))
    position = json.loads(json.dumps(source.position))
    source.close()
    source = opened(path, second)
    source.resume(position)
    drained(source)
    assert first.losses
    assert second.losses == []


def test_a_folder_is_followed_by_what_is_in_it(tmp_path: Path) -> None:
    kept = Kept()
    source = opened(tmp_path, kept)
    assert not source.poll()
    (tmp_path / "notes.bin").write_bytes(b"loss=9\n")
    (tmp_path / "train.log").write_bytes(b"step=1 loss=1\n")
    drained(source)
    assert kept.losses == [1]
    (tmp_path / "version_0").mkdir()
    shutil.copy(SAMPLES / "lightning-csv" / "metrics.csv", tmp_path / "version_0")
    drained(source)
    assert len(kept.losses) == 16


def test_the_newest_of_several_logs_that_match(tmp_path: Path) -> None:
    kept = Kept()
    source = opened(tmp_path / "job-*.log", kept)
    assert not source.poll()
    (tmp_path / "job-a.log").write_bytes(b"step=1 loss=1\n")
    (tmp_path / "other.log").write_bytes(b"step=7 loss=7\n")
    drained(source)
    assert kept.losses == [1]
