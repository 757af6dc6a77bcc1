"""What is left in `dist/` can be checked by the user who has fetched it."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

from support.rendering import MANIFESTS, OVERLAYS, render

from release.build import write_chart, write_checksums, write_manifests


def sha256sum(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_checksums_are_those_of_sha256sum_and_find_a_changed_file(tmp_path: Path) -> None:
    (tmp_path / "a.whl").write_bytes(b"\0wheel")
    (tmp_path / "b.yaml").write_text("manifest\n")
    write_checksums(tmp_path)
    assert sha256sum(tmp_path).stdout == "a.whl: OK\nb.yaml: OK\n"
    (tmp_path / "b.yaml").write_text("another\n")
    assert sha256sum(tmp_path).returncode == 1


def test_every_overlay_is_rendered_as_one_file(tmp_path: Path) -> None:
    assert render(Path(__file__).parents[2] / "manifests/overlays/minimal")  # skipped where nothing can render
    write_manifests(tmp_path, "7.11.13")
    assert sorted(each.name for each in tmp_path.iterdir()) == [f"slopewise-7.11.13-{name}.yaml" for name in OVERLAYS]


def test_the_chart_is_packed_as_it_lies_there_and_with_the_same_bytes_each_time(tmp_path: Path) -> None:
    chart = MANIFESTS / "chart/slopewise"
    write_chart(tmp_path, "7.11.13")
    packed = tmp_path / "slopewise-7.11.13-chart.tgz"
    first = packed.read_bytes()
    write_chart(tmp_path, "7.11.13")
    assert packed.read_bytes() == first
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    files = [path.relative_to(chart) for path in chart.rglob("*") if path.is_file()]
    assert len(files) > 40
    assert all((tmp_path / "slopewise" / each).read_bytes() == (chart / each).read_bytes() for each in files)
