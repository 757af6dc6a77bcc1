"""The number of threads really changes between two steps: each library is asked itself."""

from __future__ import annotations

import os

import pytest

FOLLOWED = [2, 1, 1, 2]
EXPECTED = {
    "torch": FOLLOWED,
    "torch by hand": [2, 2, 2, 2],
    "torch compiled": FOLLOWED,
    "xgboost": FOLLOWED,
    "xgboost by hand": [1, 1, 1, 1],
    "lightgbm": FOLLOWED,
    "lightgbm that began with one": [1, 1, 1, 1],  # with more it crashes
    "lightgbm under run": [1, *FOLLOWED, *FOLLOWED[:3]],
    "lightgbm by hand": [1, 1, 1, 1],
    "loader": FOLLOWED,
}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("library", EXPECTED)
def test_a_library_follows_the_cpu(run_training, environment, monkeypatch, library):
    monkeypatch.delitem(environment, "OMP_NUM_THREADS")
    if library.endswith(("began with one", "under run")):
        monkeypatch.setitem(environment, "OMP_NUM_THREADS", "1")
        monkeypatch.setitem(environment, "SLOPEWISE_THREADS_SET", "OMP_NUM_THREADS=1")
    training = run_training("threads", library)
    assert training.returncode == 0, training.stdout + training.stderr
    assert training.stdout.splitlines()[-1] == f"SEEN {EXPECTED[library]}", training.stderr
