"""Writes the PrometheusRule: `python manifests/rules/generate.py`, or with `--check` says whether it is up to date.

Before this: `slopewise.rules.yaml`, the plain rule file that promtool tests. After it: the prometheus-operator, which
takes the same groups inside an object of its own.
"""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
RULES = HERE / "slopewise.rules.yaml"
OBJECT = HERE.parent / "components/prometheus-operator/prometheusrule.yaml"
FRAME = """\
# Written by manifests/rules/generate.py around the groups of manifests/rules/slopewise.rules.yaml: change them there.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: slopewise
  namespace: slopewise-system
  labels:
    app.kubernetes.io/name: slopewise
    app.kubernetes.io/part-of: slopewise
spec:
"""


def render(rules: str) -> str:
    """The PrometheusRule around the groups of a rule file, as text, so that expressions and comments stay readable."""
    return FRAME + textwrap.indent(rules[rules.index("groups:") :], "  ")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when done or up to date, 1 when `--check` found that it is not."""
    parser = argparse.ArgumentParser(description="Write the PrometheusRule from the rule file.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when the file is out of date")
    options = parser.parse_args(arguments)
    text = render(RULES.read_text(encoding="utf-8"))
    if OBJECT.is_file() and OBJECT.read_text(encoding="utf-8") == text:
        return 0
    if options.check:
        print(
            f"{OBJECT} is out of date; run python manifests/rules/generate.py and commit the result.", file=sys.stderr
        )
        return 1
    OBJECT.write_text(text, encoding="utf-8")
    print(f"wrote {OBJECT}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
