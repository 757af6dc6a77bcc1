"""docs/exporters-sidecar.md and examples/cluster/job-sidecar.yaml, checked against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from slopewise_exporter.commands import check_pattern, tail
from slopewise_exporter.logs import Found, LineParser
from slopewise_exporter.tail.opening import FORMATS

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/exporters-sidecar.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| [^|]+ \| `((?:[^`|]|\\\|)+)` \| ([a-z].*\d) \|$", re.MULTILINE)


def options_of(parser: object) -> set[str]:
    text = parser.format_help()  # type: ignore[attr-defined]
    return set(re.findall(r"--[a-z][a-z-]+", text)) - {"--help"}


def test_the_page_names_each_option_and_no_other() -> None:
    known = options_of(tail._parser()) | options_of(check_pattern._parser())
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - {"--no-cache-dir"} == known


def test_the_page_names_each_format() -> None:
    (listed,) = re.findall(r"`--format` names the kind: (.*?)\.", PAGE, re.DOTALL)
    assert set(re.findall(r"`(\w+)`", listed)) == set(FORMATS) - {"auto"}


@pytest.mark.parametrize(("line", "expected"), ROW.findall(PAGE))
def test_the_lines_of_the_page_say_what_it_says(line: str, expected: str) -> None:
    found = LineParser().parse(line.replace("\\|", "|").replace("⇥", "\t")) or Found()
    said = ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in found.said.items())
    assert sorted(said.split(", ")) == sorted(expected.split(", "))


def test_there_are_lines_on_the_page() -> None:
    assert len(ROW.findall(PAGE)) == 12


def test_the_patterns_of_the_page_can_be_used() -> None:
    katib, named = re.findall(r"`([^`\n]*\([^`\n]*\\d[^`\n]*)`", PAGE)
    assert LineParser([katib]).parse("loss=1e-05 step=3") == Found(loss=1e-05, step=3)
    assert LineParser([named]).parse("round 3 of 60: cost 0.5") == Found(step=3, steps_planned=60, loss=0.5)


def test_the_sidecar_of_the_example_is_one_that_the_command_accepts() -> None:
    job = yaml.safe_load((ROOT / "examples/cluster/job-sidecar.yaml").read_text(encoding="utf-8"))
    pod = job["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    (trainer,) = pod["containers"]
    assert sidecar["restartPolicy"] == "Always"
    program, command, *arguments = sidecar["command"]
    assert (program, command) == ("slopewise-exporter", "tail")
    options = tail._parser().parse_args(arguments)
    assert options.source in trainer["command"][-1]
    for container in (sidecar, trainer):
        (mount,) = container["volumeMounts"]
        assert options.source.startswith(mount["mountPath"])
        assert [volume["name"] for volume in pod["volumes"]] == [mount["name"]]
    assert pod["terminationGracePeriodSeconds"] > options.linger_seconds
    assert sidecar["ports"][0]["containerPort"] == options.port
