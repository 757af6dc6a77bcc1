"""The pictures: the same figures give the same bytes, so that a picture changes only when a figure does."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from support.pictures import show_the_same

from replication.plots import GANTT_SETTING, SWEEPS, draw_all
from replication.run import SETTINGS, Result
from slopewise.reports.estimates import Estimate

ROOT = Path(__file__).parents[2]


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
    return drawn(["flowcon-fixed", GANTT_SETTING], tmp_path_factory.mktemp("once"))


def test_the_same_figures_give_the_same_bytes(once: dict[str, bytes], tmp_path: Path) -> None:
    assert drawn(["flowcon-fixed", GANTT_SETTING], tmp_path) == once


@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("L 576 288 ", "L 576.1 288 ", True),  # as another processor sums
        ("L 576 288 ", "L 570 288 ", False),
        ("Matplotlib v", "Another v", True),
        ("<!-- 10 -->", "<!-- 11 -->", False),
        ("stroke-width: 0.8", "stroke-width: 9", False),
    ],
)
def test_a_picture_is_compared_by_what_it_shows(old: str, new: str, same: bool, tmp_path: Path) -> None:
    committed = ROOT / "replication/images/flowcon-fixed-alpha.svg"
    written = committed.read_text(encoding="utf-8")
    assert old in written
    (tmp_path / "other.svg").write_text(written.replace(old, new), encoding="utf-8")
    assert show_the_same(tmp_path / "other.svg", committed) == same


def test_other_figures_give_another_picture(once: dict[str, bytes], tmp_path: Path) -> None:
    others = drawn(["flowcon-fixed"], tmp_path, offset=0.5)
    assert {file for file, reported in others.items() if reported == once[file]} == set()


def test_every_picture_is_svg_without_a_date(once: dict[str, bytes]) -> None:
    for reported in once.values():
        assert ET.fromstring(reported).tag.endswith("svg")
        assert b"<dc:date>" not in reported


def test_a_grid_is_drawn_with_a_gap_where_no_seed_has_a_figure(tmp_path: Path) -> None:
    name = "specon-grid"
    gaps = {key: Estimate(None, None, None) for key in a_result(name).estimates}
    full = drawn([name], tmp_path / "full")
    (tmp_path / "gaps").mkdir()
    files = draw_all([Result(SETTINGS[name], 24, gaps)], tmp_path / "gaps")[name]
    assert files == list(full) == ["specon-grid.svg"]
    assert (tmp_path / "gaps" / files[0]).read_bytes() != full[files[0]]


def test_only_settings_that_were_run_are_drawn(tmp_path: Path) -> None:
    pictures = draw_all([a_result("specon-20-vae-random"), a_result("specon-20-vae")], tmp_path)
    wanted = [sweep.file for sweep in SWEEPS if sweep.setting == "specon-20-vae-random"]
    assert pictures == {"specon-20-vae-random": wanted, "specon-20-vae": []}


def test_a_figure_that_no_seed_has_leaves_a_gap_instead_of_a_zero(tmp_path: Path) -> None:
    result = a_result("specon-20-vae-random")
    gaps = {key: Estimate(None, None, None) for key in result.estimates}
    (tmp_path / "full").mkdir()
    draw_all([result], tmp_path / "full")
    draw_all([Result(result.setting, 24, gaps)], tmp_path / "gaps")
    file = "specon-20-vae-random-interval.svg"
    zeros = {key: Estimate(0.0, 0.0, 0.0, 24) for key in result.estimates}
    draw_all([Result(result.setting, 24, zeros)], tmp_path / "zeros")
    reported = {name: (tmp_path / name / file).read_bytes() for name in ("full", "gaps", "zeros")}
    assert len(set(reported.values())) == 3
