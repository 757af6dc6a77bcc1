"""A real Prometheus that evaluates the rules of `manifests/rules`, with all times of theirs divided by 30.

A minute is 2 s here, and the scrapes of 15 s are 0.5 s apart: what takes three minutes in a cluster takes six seconds.
Its targets compute their pages when they are scraped, so that counters and losses are those of that moment.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from support.exporters import SCRAPE_SECONDS, Exporters
from support.programs import ask

from slopewise.adapters.local.prometheus_server import PrometheusBinaries, PrometheusServer, TargetGroup

RULES = Path(__file__).resolve().parents[2] / "manifests/rules/slopewise.rules.yaml"
FASTER = 30
_UNITS = {"s": 1, "m": 60, "h": 3600}


def milliseconds(duration: str) -> int:
    """A duration of the rules, such as `2m`, here: 4000."""
    return round(1000 * int(duration[:-1]) * _UNITS[duration[-1]] / FASTER)


def faster_rules() -> dict[str, Any]:
    """The groups of rules with their windows and intervals divided."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for group in groups:
        group["interval"] = f"{milliseconds(group.get('interval', '1m'))}ms"
        for rule in group["rules"]:
            rule["expr"] = re.sub(r"\[(\d+[smh])\]", lambda found: f"[{milliseconds(found[1])}ms]", rule["expr"])
    return {"groups": groups}


class Pages(dict[str, str]):
    """Pages that are computed when they are scraped."""

    def __init__(self) -> None:
        super().__init__()
        self.computed: dict[str, Callable[[], str]] = {}

    def get(self, path: str, default: Any = None) -> Any:
        compute = self.computed.get(path)
        return default if compute is None else compute()


Page = tuple[Mapping[str, str], Callable[[], str]]
"""The labels of a target, and what it exports when it is scraped."""


class RulesPrometheus(PrometheusServer):
    """Scrapes these pages, each with the labels of its target, and evaluates the rules."""

    def __init__(self, binaries: PrometheusBinaries, folder: Path, pages: Mapping[str, Page]) -> None:
        computed = Pages()
        self._exporters = Exporters(computed)
        targets: list[TargetGroup] = []
        for number, (name, (labels, page)) in enumerate(pages.items()):
            path = f"/{number}"
            computed.computed[path] = page
            of_target = {"instance": f"{name}:1", **labels, "__metrics_path__": path}
            targets.append({"targets": [self._exporters.address], "labels": of_target})
        super().__init__(binaries, folder / "data", scrape_interval_seconds=SCRAPE_SECONDS, targets=targets)

    def _write_configuration(self) -> None:
        super()._write_configuration()
        (self.data_dir / "rules.yml").write_text(yaml.safe_dump(faster_rules()))
        path = self.data_dir / "prometheus.yml"
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "rule_files": ["rules.yml"]}))

    def values(self, record: str, at_seconds: float) -> dict[str, float]:
        """What a rule has recorded last, by pod (of rules about namespaces, by namespace)."""
        rows = self._ask("query", query=record, time=str(at_seconds))["result"]
        return {row["metric"].get("pod") or row["metric"]["job_namespace"]: float(row["value"][1]) for row in rows}

    def health(self) -> dict[str, str]:
        """Of each rule: `ok`, or the error of its last evaluation."""
        rules = [rule for group in self._ask("rules")["groups"] for rule in group["rules"]]
        return {rule["name"]: rule.get("lastError") or rule["health"] for rule in rules}

    def _ask(self, what: str, **parameters: str) -> dict[str, Any]:
        found: dict[str, Any] = ask(f"{self.url}/api/v1/{what}", 10.0, **parameters).json()["data"]
        return found

    def stop(self) -> None:
        """Also the targets."""
        super().stop()
        self._exporters.close()


class Since:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._at = time.time()

    def __call__(self) -> float:
        return time.time() - self._at
