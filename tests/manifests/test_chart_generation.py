"""The generator of the Helm chart: what it writes, what it refuses, and that `--check` names what is not current."""

from __future__ import annotations

import copy
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from manifests.chart import generate
from manifests.chart.additions import NotExpressibleError, add

NO_PATHS: frozenset[tuple[str | int, ...]] = frozenset()


@pytest.fixture
def chart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the committed chart, which the generator takes for it."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not on the PATH; it renders the manifests")
    shutil.copytree(generate.CHART, tmp_path / "slopewise")
    monkeypatch.setattr(generate, "CHART", tmp_path / "slopewise")
    rendered = cache(generate.rendered)  # eight renderings by kubectl, of which a test needs each once
    monkeypatch.setattr(generate, "rendered", lambda *components: copy.deepcopy(rendered(*components)))
    return tmp_path / "slopewise"


def test_a_file_that_differs_or_is_obsolete_is_put_right(chart: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed, extra = chart / "templates/service-slopewise-metrics.yaml", chart / "templates/former.yaml"
    text = changed.read_text(encoding="utf-8")
    changed.write_text(text.replace("8080", "8081"), encoding="utf-8")
    extra.write_text("kind: Pod\n", encoding="utf-8")

    assert generate.main(["--check"]) == 1
    named = capsys.readouterr().err
    assert generate.main([]) == 0

    assert [str(path) in named for path in (changed, extra)] == [True, True]
    assert changed.read_text(encoding="utf-8") == text
    assert not extra.exists()


@pytest.mark.parametrize(
    ("other", "place"),
    [
        ({"spec": {"replicas": 3, "args": ["run"]}}, r"spec\.replicas: 1 becomes 3 where c"),
        ({"spec": {"replicas": 1, "args": ["sweep"]}}, r"spec\.args\.0: 'run' becomes 'sweep' where c"),
        ({"spec": {"replicas": 1}}, r"spec: \['args'\] are left out where c"),
    ],
)
def test_a_component_that_changes_something_is_refused_with_the_place(other: dict[str, Any], place: str) -> None:
    base = {"spec": {"replicas": 1, "args": ["run"]}}

    with pytest.raises(NotExpressibleError, match=place):
        add({"spec": dict(base["spec"])}, base, other, "c", NO_PATHS)
