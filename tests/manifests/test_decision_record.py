"""The component that gives each policy a decision record: where the controller writes is where the volume is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.rendering import mounted, render_mine

COMPONENT = "slopewise/manifests/components/decision-record"


@pytest.mark.parametrize("overlay", ["minimal", "namespaced"])
def test_records_are_written_into_a_volume_that_is_large_enough(overlay: str, tmp_path: Path) -> None:
    container, mount, volume = mounted(render_mine(tmp_path, overlay, components=[COMPONENT]), "records")
    mebibytes = next(
        int(found[1]) for arg in container["args"] if (found := re.fullmatch(r"--record-max-mib=(\d+)", arg))
    )

    assert f"--record={mount['mountPath']}" in container["args"]
    assert int(volume["emptyDir"]["sizeLimit"].removesuffix("Mi")) > 7 * mebibytes
