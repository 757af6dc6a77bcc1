"""Environment variables: who reports, where it listens, and bad values."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.training_fixtures import MakeReporter

from slopewise_exporter.environment import (
    RANK_VARIABLES,
    EndpointSettings,
    checkpoint_folder,
    endpoint_settings,
    reports_here,
)
from slopewise_exporter.values import Checker


def settings(environ: dict[str, str]) -> EndpointSettings:
    return endpoint_settings(environ, Checker(), port=9464, address="0.0.0.0", linger_seconds=20.0)


@pytest.mark.parametrize("variable", RANK_VARIABLES)
def test_only_global_rank_zero_reports(variable: str) -> None:
    assert reports_here({variable: "0"}, Checker())
    assert not reports_here({variable: "1"}, Checker())


def test_the_rank_of_the_innermost_launcher_counts() -> None:
    # torchrun under Slurm: node 1's Slurm rank is 1, yet the rank of its processes is what torchrun says.
    assert reports_here({"RANK": "0", "SLURM_PROCID": "1"}, Checker())
    assert not reports_here({"RANK": "4", "SLURM_PROCID": "0"}, Checker())


def test_a_local_rank_alone_decides_nothing() -> None:
    assert reports_here({"LOCAL_RANK": "1"}, Checker())


@pytest.mark.parametrize("text", ["one", "-1", "1.5"])
def test_a_rank_that_is_no_rank_is_told_and_counts_as_zero(caplog: pytest.LogCaptureFixture, text: str) -> None:
    assert reports_here({"RANK": text}, Checker())
    assert "RANK" in caplog.text


def test_another_rank_opens_no_port_and_every_method_does_nothing(
    make_reporter: MakeReporter, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("SLOPEWISE_EXPORTER_PORT_FILE", str(tmp_path / "port"))
    with make_reporter() as reporter:
        reporter.step(loss="no matter what", samples=-1)  # type: ignore[arg-type]  # what a training may do
        reporter.epoch()
        reporter.evaluate(0.1)
        with reporter.checkpoint():
            pass
        assert reporter.port is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("text", "port_expected"), [("1", False), ("true", False), ("0", True), ("", True)])
def test_the_exporter_can_be_switched_off(
    make_reporter: MakeReporter, monkeypatch: pytest.MonkeyPatch, text: str, port_expected: bool
) -> None:
    monkeypatch.setenv("SLOPEWISE_EXPORTER_DISABLED", text)
    assert (make_reporter().port is not None) is port_expected


def test_variables_win_over_arguments() -> None:
    found = settings(
        {
            "SLOPEWISE_EXPORTER_PORT": "0",
            "SLOPEWISE_EXPORTER_ADDRESS": "127.0.0.1",
            "SLOPEWISE_EXPORTER_LINGER_SECONDS": "1.5",
        }
    )
    assert (found.port, found.address, found.linger_seconds) == (0, "127.0.0.1", 1.5)


def test_an_empty_variable_is_an_unset_one(caplog: pytest.LogCaptureFixture) -> None:
    found = settings(
        {
            "SLOPEWISE_EXPORTER_PORT": "",
            "SLOPEWISE_EXPORTER_ADDRESS": "",
            "SLOPEWISE_EXPORTER_LINGER_SECONDS": "",
            "SLOPEWISE_EXPORTER_PORT_FILE": "",
        }
    )
    assert (found.port, found.address, found.linger_seconds, found.port_file) == (9464, "0.0.0.0", 20.0, None)
    assert caplog.records == []


@pytest.mark.parametrize("folder", ["", None])
def test_an_empty_folder_is_none_and_not_where_the_process_stands(folder: str | None) -> None:
    assert checkpoint_folder({"SLOPEWISE_CHECKPOINT_FOLDER": ""}, folder) is None
    assert checkpoint_folder({}, folder) is None


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SLOPEWISE_EXPORTER_PORT", "http"),
        ("SLOPEWISE_EXPORTER_PORT", "65536"),
        ("SLOPEWISE_EXPORTER_PORT", "-1"),
        ("SLOPEWISE_EXPORTER_LINGER_SECONDS", "-1"),
        ("SLOPEWISE_EXPORTER_LINGER_SECONDS", "nan"),
        ("SLOPEWISE_EXPORTER_LINGER_SECONDS", "1e9"),
    ],
)
def test_a_variable_that_cannot_be_used_is_told_in_one_sentence_and_the_argument_counts(
    caplog: pytest.LogCaptureFixture, variable: str, text: str
) -> None:
    found = settings({variable: text})
    assert (found.port, found.linger_seconds) == (9464, 20.0)
    assert len(caplog.records) == 1
    assert variable in caplog.text
    assert repr(text) in caplog.text


def test_a_switch_that_is_neither_on_nor_off_is_told_and_the_exporter_stays_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert reports_here({"SLOPEWISE_EXPORTER_DISABLED": "perhaps"}, Checker())
    assert "SLOPEWISE_EXPORTER_DISABLED" in caplog.text
