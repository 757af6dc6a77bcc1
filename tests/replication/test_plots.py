"""The pictures: the same figures give the same bytes, so that a picture changes only when a figure does."""

from __future__ import annotations

from pathlib import Path

import pytest

from replication.plots import draw_all
from replication.run import SETTINGS, Result
from slopewise.reports.estimates import Estimate


def a_result(name: str, offset: float = 0.0) -> Result:
    setting = SETTINGS[name]
    estimates = {
        (place, variant.name): Estimate(place + offset, place - 1.0, place + 2.0, 24)
        for place, _ in enumerate(setting.claims)
        for variant in setting.variants
    }
    return Result(setting, 24, estimates)


def drawn(names: list[str], folder: Path, offset: float = 0.0) -> dict[str, bytes]:
    pictures = draw_all([a_result(name, offset) for name in names], folder)
    files = [file for files in pictures.values() for file in files]
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)
    return {file: (folder / file).read_bytes() for file in files}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return drawn(["flowcon-fixed"], tmp_path_factory.mktemp("once"))


def test_the_same_figures_give_the_same_bytes_and_others_another_picture(
    once: dict[str, bytes], tmp_path: Path
) -> None:
    (tmp_path / "again").mkdir()
    assert drawn(["flowcon-fixed"], tmp_path / "again") == once
    (tmp_path / "others").mkdir()
    others = drawn(["flowcon-fixed"], tmp_path / "others", offset=0.5)
    assert {file for file, reported in others.items() if reported == once[file]} == set()


def test_a_figure_that_no_seed_has_leaves_a_gap_instead_of_a_zero(tmp_path: Path) -> None:
    name = "specon-20-vae-random"
    result, reported = a_result(name), {}
    gaps, zeros = Estimate(None, None, None), Estimate(0.0, 0.0, 0.0, 24)
    for kind, figure in (("full", None), ("gaps", gaps), ("zeros", zeros)):
        (tmp_path / kind).mkdir()
        estimates = {key: figure or each for key, each in result.estimates.items()}
        (file,) = draw_all([Result(result.setting, 24, estimates)], tmp_path / kind)[name]
        reported[kind] = (tmp_path / kind / file).read_bytes()
    assert len(set(reported.values())) == 3
