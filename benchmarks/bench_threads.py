"""What threads that follow the CPU bring to unmodified scripts with default threads, eight of them at once.

Each script runs three ways in turn, for as many rounds: by itself, with one thread by hand (`OMP_NUM_THREADS=1`), and
started by `slopewise-exporter run`. All trainings of a round begin when the last one has imported its libraries: one
that begins earlier would share the cores with imports. What is printed is the seconds until then, those from then until
all have ended, and the CPU-seconds of one training; and the throughput under `run` over that of the other two ways. The
bounds: 0.9 of one thread by hand, and 5 times the default of LightGBM and HistGradientBoosting, where there are fewer
cores than jobs. Beside other programs the seconds say little, and the ratios are those of that load.

LightGBM, XGBoost and PyTorch come from the Python of `make test-frameworks` (SLOPEWISE_FRAMEWORKS=.../python).

    python benchmarks/bench_threads.py [--jobs 8] [--rounds 3] [--work 1.0]      # exit 1 beyond a bound
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
FRAMEWORKS = Path(os.environ.get("SLOPEWISE_FRAMEWORKS", ROOT / ".venv-frameworks" / "bin" / "python"))
MIN_OF_PINNED = 0.9
MIN_OF_DEFAULT = {"lightgbm": 5.0, "histograms": 5.0}

FRAME = """
import sys, time
import numpy as np
work = float(sys.argv[1])
random = np.random.default_rng(0)
x = random.normal(size=(3000, 20))
y = x.sum(1)
{imports}
print("READY", flush=True)
sys.stdin.readline()
began, used = time.monotonic(), time.process_time()
{training}
print("TOOK", began, time.monotonic(), time.process_time() - used)
"""
SCRIPTS = {
    "numpy": (
        "",
        """
a = random.normal(size=(300, 300))
for step in range(int(1500 * work)):
    a = np.tanh(a @ a)
    if step % 50 == 0:
        print(f"step {step} loss={abs(a).mean():.4f}")
""",
    ),
    "histograms": (
        "from sklearn.ensemble import HistGradientBoostingRegressor",
        "HistGradientBoostingRegressor(max_iter=int(150 * work), early_stopping=False).fit(x, y)",
    ),
    "lightgbm": (
        "import lightgbm",
        "lightgbm.train({'verbose': -1}, lightgbm.Dataset(x, y), int(150 * work))",
    ),
    "xgboost": ("import xgboost", "xgboost.train({}, xgboost.DMatrix(x, y), int(150 * work))"),
    "torch": (
        "import torch",
        """
network = torch.nn.Sequential(torch.nn.Linear(20, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
rows, target = torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
for step in range(int(400 * work)):
    optimizer.zero_grad()
    loss = ((network(rows)[:, 0] - target) ** 2).mean()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(f"step {step} loss={loss.item():.4f}")
""",
    ),
}
LARGE = ("lightgbm", "xgboost", "torch")
WAYS = ("default", "one thread", "run")


class Took(NamedTuple):
    """Of all jobs of a round; of CPU-seconds the median."""

    start_seconds: float
    """Until the last one can begin to train."""
    seconds: float
    """From then until the last one has ended."""
    cpu_seconds: float


def train(python: str, script: Path, way: str, jobs: int, work: float) -> Took:
    """So many at once."""
    quiet = {"SLOPEWISE_EXPORTER_PORT": "0", "SLOPEWISE_EXPORTER_LINGER_SECONDS": "0", "CUDA_VISIBLE_DEVICES": ""}
    environment = {**os.environ, **quiet, "PYTHONPATH": str(ROOT / "exporters")}
    if way == "run":
        environment["SLOPEWISE_THREADS"] = "follow"
    if way == "one thread":
        environment["OMP_NUM_THREADS"] = "1"
    before = [sys.executable, "-m", "slopewise_exporter", "run", "--"] if way == "run" else []
    command = [*before, python, str(script), str(work)]
    pipe, launched = subprocess.PIPE, time.monotonic()
    started = [subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) for _ in range(jobs)]
    for training in started:
        assert training.stdout is not None
        if training.stdout.readline() != "READY\n":
            sys.exit(f"{' '.join(command)} has failed")
    ready = time.monotonic()
    for training in started:
        assert training.stdin is not None
        training.stdin.write("\n")
        training.stdin.flush()
    lines = [(training.communicate()[0].splitlines() or [""])[-1].split() for training in started]
    if any(line[:1] != ["TOOK"] for line in lines):
        sys.exit(f"{' '.join(command)} has failed")
    times = [tuple(map(float, line[1:])) for line in lines]
    spent = max(end for _, end, _ in times) - min(began for began, _, _ in times)
    return Took(ready - launched, spent, statistics.median(used for *_, used in times))


def main() -> int:
    """One line a script; 1 where a bound does not hold."""
    parser = argparse.ArgumentParser(description="Throughput of trainings whose threads follow the CPU.")
    parser.add_argument("--jobs", type=int, default=8, help="how many at once")
    parser.add_argument("--rounds", type=int, default=3, help="of each way, in turn; the median counts")
    parser.add_argument("--work", type=float, default=1.0, help="steps of each, as a share")
    parser.add_argument("--only", choices=SCRIPTS, action="append", help="may be repeated")
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    print(f"{options.jobs} at once on {cores} cores, load {os.getloadavg()[0]:.1f} when it began")
    good = True
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only or SCRIPTS:
            python = str(FRAMEWORKS) if name in LARGE else sys.executable
            if not Path(python).exists():
                print(f"{name}: not installed ({python})")
                continue
            script = Path(folder, f"train_{name}.py")
            script.write_text(FRAME.format(imports=SCRIPTS[name][0], training=SCRIPTS[name][1]))
            rounds = [
                [train(python, script, way, options.jobs, options.work) for way in WAYS] for _ in range(options.rounds)
            ]
            default, pinned, followed = (
                Took(*(statistics.median(values) for values in zip(*took, strict=True)))
                for took in zip(*rounds, strict=True)
            )
            of_pinned, of_default = pinned.seconds / followed.seconds, default.seconds / followed.seconds
            shown = "; ".join(
                f"{way} {took.start_seconds:.1f} + {took.seconds:.1f} s, {took.cpu_seconds:.2f} CPU-s"
                for way, took in zip(WAYS, (default, pinned, followed), strict=True)
            )
            print(
                f"{name}: {of_pinned:.2f} of one thread by hand, {of_default:.1f} x the default ({shown})", flush=True
            )
            short = options.jobs > cores and of_default < MIN_OF_DEFAULT.get(name, 0)
            good = good and of_pinned >= MIN_OF_PINNED and not short
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
