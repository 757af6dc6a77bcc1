"""Writes the Helm chart from the kustomize overlays: `python manifests/chart/generate.py`, or checks it with `--check`.

`manifests/overlays/minimal` gives the objects, each component below `manifests/components` those of a condition, and
what users set becomes a value. What is written by hand is in `source/`: values, their schema, notes, helpers.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from string import Template
from typing import Any

import yaml

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # run as a file, Python knows only this folder, not the package it is

from manifests.chart.additions import NotExpressibleError, add  # noqa: E402
from manifests.chart.template_text import Expression, Items, Node, Structure, When, template  # noqa: E402
from slopewise import __version__  # noqa: E402

MANIFESTS = HERE.parent
CHART = HERE / "slopewise"
SOURCE = HERE / "source"
NAMESPACE = "slopewise-system"
_HEAD = "# Written by manifests/chart/generate.py from the kustomize overlays: change those, then `make generate`.\n"

COMPONENTS = {
    "high-availability": "gt (int .Values.replicas) 1",
    "moves": ".Values.moves.enabled",
    "prometheus-operator": "",  # its objects have a condition of their kind
    "prometheus-credentials": ".Values.prometheus.credentials",
    "decision-record": ".Values.decisionRecord.enabled",
    "alerts": ".Values.alerts.enabled",
    "threads": ".Values.threads.enabled",
}
"""The components that are values of the chart, in the order in which an overlay names them, and their conditions."""

CONDITIONS = {
    "Namespace": ".Values.namespace.create",
    "CustomResourceDefinition": ".Values.crds.install",
    "NetworkPolicy": ".Values.networkPolicy.enabled",
    "PodMonitor": ".Values.prometheusOperator.monitors",
    "PrometheusRule": ".Values.prometheusOperator.rules",
}
_DEPLOYMENT = ("Deployment", "slopewise-controller")
_GIVEN_BY_VALUES = frozenset({("spec", "replicas")})

Objects = dict[tuple[str, str], dict[str, Any]]


def rendered(*components: str) -> Objects:
    """What kustomize makes of the overlay `minimal` with these components, by kind and name."""
    with tempfile.TemporaryDirectory() as folder:
        at = os.path.relpath(MANIFESTS, Path(folder).resolve())
        kustomization = {
            "resources": [f"{at}/overlays/minimal"],
            "components": [f"{at}/components/{name}" for name in components],
        }
        (Path(folder) / "kustomization.yaml").write_text(yaml.safe_dump(kustomization), encoding="utf-8")
        done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=True)
    documents = yaml.load_all(done.stdout, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return {(document["kind"], document["metadata"]["name"]): document for document in documents}


def templates() -> Iterator[tuple[str, str]]:
    """The name and the text of each template."""
    base = rendered()
    tree, conditions = copy.deepcopy(base), dict.fromkeys(base, "")
    for name, condition in COMPONENTS.items():
        for key, document in rendered(name).items():
            if key in base:
                add(tree[key], base[key], document, condition, _GIVEN_BY_VALUES if key == _DEPLOYMENT else frozenset())
            else:
                tree[key], conditions[key] = document, condition
    settings = next(name for kind, name in base if kind == "ConfigMap" and name.startswith("slopewise-settings-"))
    for (kind, name), document in tree.items():
        own = ".Values.dashboards.enabled" if name.startswith("slopewise-dashboard-") else CONDITIONS.get(kind, "")
        both = [condition for condition in (conditions[kind, name], own) if condition]
        condition = f"and {' '.join(f'({one})' for one in both)}" if len(both) > 1 else "".join(both)
        node = _with_names(_with_values(kind, name, document), settings)
        file = "slopewise-settings" if name == settings else name.partition(".")[0]
        yield f"{kind.lower()}-{file}.yaml", _HEAD + template(node, condition)


def _with_names(node: Node, settings: str) -> Node:
    """The object in any namespace, with the image of the values, and the settings by the hash of their address."""
    if isinstance(node, dict):
        return {key: _with_names(value, settings) for key, value in node.items()}
    if isinstance(node, list):
        return [_with_names(item, settings) for item in node]
    if isinstance(node, Items) and isinstance(node.items, tuple):
        return Items(node.condition, tuple(_with_names(item, settings) for item in node.items))
    if node == NAMESPACE:
        return Expression(".Release.Namespace")
    if node == settings:
        return Expression('include "slopewise.settingsName" .')
    if node == f"slopewise:{__version__}":
        return Expression('include "slopewise.image" . | quote')
    return node


def _with_values(kind: str, name: str, document: dict[str, Any]) -> dict[str, Any]:
    """The object with the values of its kind; those of names are put in later."""
    if kind == "Deployment":
        _set_deployment(document["spec"])
    elif kind == "CronJob":
        _set_pod(document["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    elif kind == "CustomResourceDefinition":
        keep = {When(".Values.crds.keep"): {"annotations": {"helm.sh/resource-policy": "keep"}}}
        document["metadata"] = {**document["metadata"], **keep}
    elif kind == "NetworkPolicy" and name == "slopewise-controller":
        _set_network(document["spec"])
    elif name.startswith("slopewise-settings-"):
        document["data"]["PROMETHEUS_URL"] = Expression(".Values.prometheus.url | quote")
    elif kind in {"PodMonitor", "PrometheusRule"}:
        labels = ".Values.prometheusOperator.labels"
        document["metadata"]["labels"][When(labels)] = Structure(labels)
        if name == "slopewise-trainers":
            document["spec"]["podMetricsEndpoints"][0]["interval"] = Expression(
                'printf "%ds" (int .Values.prometheus.scrapeIntervalSeconds)'
            )
    return document


def _set_deployment(spec: dict[str, Any]) -> None:
    spec["replicas"] = Expression(".Values.replicas")
    _set_pod(spec["template"]["spec"])
    (container,) = spec["template"]["spec"]["containers"]
    container["resources"] = Structure(".Values.resources")
    interval = _defaults()["SCRAPE_INTERVAL"]
    flag = Expression('printf "--scrape-interval=%d" (int .Values.prometheus.scrapeIntervalSeconds)')
    container["args"] += [
        Items(f"ne (int .Values.prometheus.scrapeIntervalSeconds) {interval}", (flag,)),
        Items(".Values.extraArgs", Structure(".Values.extraArgs")),
    ]


def _set_pod(spec: dict[Any, Node]) -> None:
    (container,) = spec["containers"]
    policy = ".Values.image.pullPolicy"
    container[When(policy)] = {"imagePullPolicy": Expression(policy)}
    for key in ("imagePullSecrets", "nodeSelector", "tolerations"):
        spec[When(f".Values.{key}")] = {key: Structure(f".Values.{key}")}
    priority = ".Values.priorityClassName"
    spec[When(priority)] = {"priorityClassName": Expression(priority)}


def _set_network(spec: dict[str, Any]) -> None:
    for peers in (spec["ingress"][0]["from"], spec["egress"][0]["to"]):
        labels = peers[0]["namespaceSelector"]["matchLabels"]
        labels["kubernetes.io/metadata.name"] = Expression(".Values.networkPolicy.prometheusNamespace")
    spec["egress"][0]["ports"][0]["port"] = Expression(".Values.networkPolicy.prometheusPort")


@cache
def _defaults() -> dict[str, str]:
    """What the values repeat of the overlays."""
    objects = rendered("prometheus-operator")
    spec = objects[_DEPLOYMENT]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    settings = next(one for (_, name), one in objects.items() if name.startswith("slopewise-settings-"))
    trainers = objects["PodMonitor", "slopewise-trainers"]["spec"]["podMetricsEndpoints"][0]
    network = objects["NetworkPolicy", "slopewise-controller"]["spec"]["egress"][0]
    return {
        "PROMETHEUS_URL": settings["data"]["PROMETHEUS_URL"],
        "PROMETHEUS_NAMESPACE": network["to"][0]["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"],
        "PROMETHEUS_PORT": str(network["ports"][0]["port"]),
        "REPLICAS": str(spec["replicas"]),
        "RESOURCES": yaml.safe_dump(container["resources"]).rstrip().replace("\n", "\n  "),
        "SCRAPE_INTERVAL": trainers["interval"].removesuffix("s"),
        "VERSION": __version__,
    }


def _table(schema: dict[str, Any], values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in schema["properties"].items():
        if "properties" in value:
            yield from _table(value, values[key], f"{prefix}{key}.")
        elif key in values:
            yield f"| `{prefix}{key}` | `{json.dumps(values[key])}` | {value['description']} |"


def files() -> dict[Path, str]:
    """Every file of the chart with its text."""
    defaults = _defaults()
    made = {CHART / "templates" / name: text for name, text in templates()}
    for path in sorted(SOURCE.rglob("*")):
        if path.is_file() and path.name != "README.md":
            text = path.read_text(encoding="utf-8")
            generic = path.name in {"Chart.yaml", "values.yaml"}
            made[CHART / path.relative_to(SOURCE)] = Template(text).substitute(defaults) if generic else text
    schema = json.loads((SOURCE / "values.schema.json").read_text(encoding="utf-8"))
    table = "\n".join(_table(schema, yaml.safe_load(made[CHART / "values.yaml"])))
    readme = (SOURCE / "README.md").read_text(encoding="utf-8")
    made[CHART / "README.md"] = Template(readme).substitute(defaults, VALUES=table)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when done or up to date, 1 when `--check` found that it is not, 2 when nothing can be written."""
    parser = argparse.ArgumentParser(description="Write the Helm chart from the kustomize overlays.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is out of date")
    options = parser.parse_args(arguments)
    if shutil.which("kubectl") is None:
        sys.stderr.write(f"kubectl is not on the PATH; it renders what {CHART} is made of, which was left as it is.\n")
        return 0 if options.check else 2
    try:
        wanted = files()
    except NotExpressibleError as error:
        sys.stderr.write(f"The chart cannot say what a component changes: {error}\n")
        return 2
    there = {path for path in CHART.rglob("*") if path.is_file()}
    stale = [path for path, text in wanted.items() if path not in there or path.read_text(encoding="utf-8") != text]
    stale += sorted(there - wanted.keys())
    for path in stale:
        if options.check:
            sys.stderr.write(f"{path} is out of date; run make generate and commit the result.\n")
        elif path in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[path], encoding="utf-8")
        else:
            path.unlink()
    return 1 if options.check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
