"""`slopewise status` of 10,000 jobs, as a user types it: seconds to its first line, beside fetching the same lists.

Gate: 2 s to the first line. The baseline of the same run is a plain client that fetches and decodes the same pages.
The API server is the tests' own, in this process, with 2 KiB of remembered points in each JobGrowth.
"""

from __future__ import annotations

import base64
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

from support.api_server import ApiServer  # noqa: E402

from slopewise.adapters.kube.state.job_growth_object import growth_path  # noqa: E402

JOBS, NAMESPACES, MEMORY_BYTES = 10_000, 50, 2048
BOUND_SECONDS = 2.0
ROUNDS = 5
SINCE = "2026-11-21T15:00:00Z"


def growth(number: int, rng: random.Random) -> dict[str, Any]:
    """A workload in the middle of its life, with the conditions and figures that a pass writes."""
    name, namespace = f"job-{number}", f"team-{number % NAMESPACES}"
    kinds = ("Managed", "Metrics", "Placed", "Promised")
    conditions = [
        {"type": kind, "status": "True", "reason": "Fine", "message": "x" * 60, "lastTransitionTime": SINCE}
        for kind in kinds
    ]
    memory = base64.b64encode(rng.randbytes(MEMORY_BYTES)).decode()
    return {
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"workload": {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"uid-{number}"}},
        "status": {
            "state": "Training",
            "class": rng.choice(["first", "waits", "due"]),
            "reason": "first: 90 % of its improvement is 26 s away, every other job still ends in time",
            "conditions": conditions,
            "jobs": [{"slot": "0", "memory": memory}],
        },
    }


def status_seconds(kubeconfig: Path) -> tuple[float, float]:
    """From the start of the process to its first line, and to its end; RuntimeError when it fails."""
    words = [sys.executable, "-m", "slopewise", "status", "--kubeconfig", str(kubeconfig)]
    start = time.perf_counter()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        rest, errors = process.communicate(timeout=60)
    whole = time.perf_counter() - start
    if process.returncode != 0 or f"{JOBS}" not in line + rest:
        raise RuntimeError(f"status ended with {process.returncode}: {line}{rest}{errors}")
    return seconds, whole


def plain_seconds(server: ApiServer) -> float:
    """Every page fetched and decoded by the standard library."""
    start, token, count = time.perf_counter(), "", 0
    while True:
        url = f"{server.url}{growth_path()}?limit=500" + (f"&continue={token}" if token else "")
        with urllib.request.urlopen(url) as answer:
            page = json.load(answer)
        count += len(page["items"])
        token = page["metadata"].get("continue", "")
        if not token:
            break
    if count != JOBS:
        raise RuntimeError(f"{count} of {JOBS} were listed")
    return time.perf_counter() - start


def main() -> int:
    """Print the figures; 1 when the bound is missed."""
    rng = random.Random(7)
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        for number in range(JOBS):
            made = growth(number, rng)
            server.put(growth_path(made["metadata"]["namespace"]), made)
        kubeconfig = Path(folder) / "kubeconfig"
        kubeconfig.write_text(server.kubeconfig)
        plain = statistics.median(plain_seconds(server) for _ in range(ROUNDS))
        times = [status_seconds(kubeconfig) for _ in range(ROUNDS)]
        first, whole = (statistics.median(each) for each in zip(*times, strict=True))
    held = first <= BOUND_SECONDS
    verdict = "held" if held else "MISSED"
    print(f"{JOBS} jobs: the same pages by a plain client {plain:.2f} s")
    print(
        f"slopewise status: {first:.2f} s to its first line (bound {BOUND_SECONDS:g} s): {verdict}; "
        f"{whole:.2f} s to its end, {whole / plain:.1f} times that client"
    )
    return int(not held)


if __name__ == "__main__":
    sys.exit(main())
