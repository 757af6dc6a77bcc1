"""How long Prometheus takes to evaluate our rules for 5,000 jobs, group by group.

The series are written as blocks by promtool, 15 s apart, and each expression is asked of a real Prometheus at their
end, as the rule engine does at each interval. Bound: a group takes at most a fifth of its interval (a minute where it
names none). `--jobs N` makes fewer; the bounds stay.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import requests
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from support.backfilled_prometheus import KUBELET, Series, Value, backfilled  # noqa: E402

from slopewise.adapters.local.prometheus_install import find_prometheus  # noqa: E402

RULES = ROOT / "manifests/rules/slopewise.rules.yaml"
SCRAPE_SECONDS, HISTORY_SECONDS = 15.0, 240.0
ROUNDS = 3
SHARE = 0.2
NODES = 200
OF_A_JOB: Mapping[str, Value] = {
    'training_loss{stage="train"}': lambda at: 3 - at / 1000,
    'training_loss{stage="train_ema"}': lambda at: 2 - at / 1000,
    "training_steps_total": lambda at: 5 * at,
    'training_info{objective="min"}': lambda _: 1.0,
    "process_cpu_seconds_total": lambda at: 0.5 * at,
}
RECORDED: Mapping[str, Value] = {
    "namespace_pod:training_loss:median1m": lambda at: 2 - at / 1000,
    "namespace_pod:training_loss:first": lambda _: 2.0,
    "namespace_pod:training_loss:best": lambda at: 2 - at / 1000,
    "namespace_pod:training_loss:range": lambda _: 1.0,
    "namespace_pod:training_growth:deriv2m": lambda _: 0.001,
    "namespace_pod:training_cpu_cores:rate2m": lambda _: 0.5,
    "namespace_pod:pace_seconds:ratio2m": lambda _: 0.2,
}
OF_THE_CONTROLLER: Mapping[str, Value] = {
    "slopewise_job_metrics_available": lambda _: 1.0,
    "slopewise_job_diverged": lambda _: 0.0,
    "slopewise_job_regressed": lambda _: 0.0,
    "slopewise_job_resize_pending_seconds": lambda at: at,
    "slopewise_job_objective_seconds": lambda _: 0.25,
    "slopewise_job_objective_missed": lambda _: 0.0,
    "slopewise_job_deadline_slack_seconds": lambda _: 60.0,
    "slopewise_job_deadline_hopeless": lambda _: 0.0,
    "slopewise_job_deadline_missed": lambda _: 0.0,
}


def history(jobs: int, now: float) -> Iterator[Series]:
    """What each job, its kubelet, the controller and the rules have written in the last minutes."""

    def of(name: str, labels: Mapping[str, str], value: Value) -> Series:
        metric, _, own = name.partition("{")
        extra = dict(pair.split("=") for pair in own.rstrip("}").split(",") if pair)
        labels = {**labels, **{key: text.strip('"') for key, text in extra.items()}}
        return Series(metric, labels, now - HISTORY_SECONDS, HISTORY_SECONDS, value, SCRAPE_SECONDS)

    for number in range(jobs):
        namespace, name = f"team-{number % 50}", f"train-{number:04d}"
        pod = {"namespace": namespace, "pod": name}
        target = {**pod, "job": "trainers", "instance": f"{name}:9464"}
        yield from (of(each, target, value) for each, value in OF_A_JOB.items())
        yield from (of(each, pod, value) for each, value in RECORDED.items())
        yield of("container_cpu_usage_seconds_total", {**pod, "container": "trainer", **KUBELET}, lambda at: at / 2)
        job = {"job_namespace": namespace, "job_name": name, "job_node": f"node-{number % NODES}", "job": "slopewise"}
        yield from (of(each, job, value) for each, value in OF_THE_CONTROLLER.items())


def seconds_of(url: str, expression: str, now: float) -> tuple[float, int]:
    """The fastest of a few rounds, and the rows of the answer."""
    found = []
    with requests.Session() as session:
        session.trust_env = False
        for _ in range(ROUNDS):
            start = time.monotonic()
            answer = session.post(f"{url}/api/v1/query", data={"query": expression, "time": str(now)}, timeout=120)
            answer.raise_for_status()
            found.append(time.monotonic() - start)
    return min(found), len(answer.json()["data"]["result"])


def main() -> int:
    """Print the figures; 1 when a bound is missed."""
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=5000)
    jobs = options.parse_args().jobs
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    now, held = time.time() - SCRAPE_SECONDS, True
    with (
        tempfile.TemporaryDirectory() as folder,
        backfilled(find_prometheus(), Path(folder), history(jobs, now)) as url,
    ):
        for group in groups:
            bound = SHARE * float(group.get("interval", "60s").rstrip("s"))
            total = 0.0
            for rule in group["rules"]:
                seconds, rows = seconds_of(url, rule["expr"], now)
                total += seconds
                print(f"  {rule.get('record') or rule['alert']}: {1000 * seconds:.0f} ms, {rows} rows")
            held = held and total <= bound
            verdict = "held" if total <= bound else "MISSED"
            print(f"bound: {group['name']}, {jobs} jobs: {total:.2f} of {bound:g} s: {verdict}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
