"""The same decisions on every processor: with other kernels of OpenBLAS, and with numpy's own dispatch off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from regression import digests
from support.instances import a_sim_job, a_sim_node, an_instance
from support.recorded_runs import a_document, record_run

from slopewise.model import Migrate, Place, Resize

TESTS = Path(__file__).parents[1]
FEATURES = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
"""What this processor has of what numpy dispatches to."""
KERNELS = {"Haswell": "X86_V3", "SkylakeX": "X86_V4"}
"""Each kernel of OpenBLAS with what a processor must have for it; where it is missing, OpenBLAS takes another one."""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of SpeCon's moves under FlowCon, made with the kernel of this processor."""
    path = tmp_path_factory.mktemp("record") / "record.jsonl"
    jobs = [a_sim_job(f"job-{n}", 150.0 + 40 * n, 25.0 * n, noise=0.02) for n in range(6)]
    nodes = [a_sim_node("n1"), a_sim_node("n2", cpu=2.0)]
    document = a_document("flowcon", placement={"name": "specon"}, migration={"enabled": True, "minStaySeconds": 0})
    with pytest.MonkeyPatch.context() as patch:
        reports = record_run(patch, an_instance(jobs, nodes, seed=3), document, path)
    assert any(report.results.of(Place, Migrate) for report in reports)
    assert any(report.results.of(Resize) for report in reports)
    return path


@pytest.fixture(scope="module")
def here() -> dict[str, str]:
    return digests.digests()


def decided(record: Path, **environment: str) -> dict[str, Any]:
    """What another process decides, which loads numpy with this environment."""
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    command = [sys.executable, str(TESTS / "regression/digests.py"), str(record)]
    ran = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths, **environment}, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("kernel", KERNELS)
def test_decisions_do_not_depend_on_the_kernels_of_blas(kernel: str, record: Path, here: dict[str, str]) -> None:
    if KERNELS[kernel] not in FEATURES:
        pytest.skip(f"this processor has no {KERNELS[kernel]}, which the kernel {kernel} needs")
    assert decided(record, OPENBLAS_CORETYPE=kernel) == {"digests": here, "differences": []}


def test_decisions_do_not_depend_on_numpys_dispatch(record: Path, here: dict[str, str]) -> None:
    if not FEATURES:
        pytest.skip("this processor has nothing that numpy dispatches to")
    assert decided(record, NPY_DISABLE_CPU_FEATURES=" ".join(FEATURES)) == {"digests": here, "differences": []}
