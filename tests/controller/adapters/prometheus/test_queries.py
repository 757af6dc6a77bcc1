"""Text becomes PromQL in one place only: what cannot be a name is refused, values cannot leave their quotes."""

from __future__ import annotations

from urllib.parse import quote_plus

import pytest

from slopewise.adapters.prometheus import queries
from slopewise.adapters.prometheus.mapped_queries import (
    joined,
    reset_parts,
    response_parts,
    sources_of,
    step_label_parts,
    step_parts,
)
from slopewise.config.metric_mappings import EvaluationMapping, ResponseMapping
from slopewise.errors import UsageError


def test_several_values_are_compared_as_text_in_one_pattern() -> None:
    values = queries.AnyOf(("team-a", "b.c|.*", 'd"'))
    assert queries.render_matchers((("namespace", values),)) == 'namespace=~"team-a|b\\\\.c\\\\|\\\\.\\\\*|d\\"",'
    many = queries.AnyOf(tuple(f"team-{number}" for number in range(100)))
    any_but_none = queries.render_matchers((("namespace", many), ("pod", queries.AnyOf())))
    assert any_but_none == 'namespace!="",pod!="",', "of no values, or too many for a URL"


def test_a_reading_with_mappings_fits_into_urls_that_proxies_let_through() -> None:
    namespaces = queries.AnyOf(tuple(f"team-{number:02}" for number in range(25)))
    mapping = EvaluationMapping.model_validate(
        {
            "preset": "prime-rl",
            "labels": {"stage": "eval"},
            "stepsPlanned": {"metric": "trainer_max_steps"},
            "podLabels": {"namespace": "k8s_namespace_name", "pod": "k8s_pod_name"},
        }
    )
    forced = (("pod", queries.AnyOf()), ("namespace", namespaces))
    (source,) = sources_of([mapping], {})
    (served,) = sources_of([ResponseMapping(preset="ray-serve-proxy")], {})
    matchers = (*source.matchers(forced), *mapping.labels.items())
    rendered = [
        queries.resources((), namespaces),
        queries.levels(mapping.metric, matchers, 20, 5, ("k8s_namespace_name", "k8s_pod_name")),
        *joined(
            queries.events(forced, 20, (*reset_parts([source], forced, 20), *step_label_parts([source], forced))),
            queries.facts(
                forced, 20, "min", (*response_parts([served], forced, 20), *step_parts([source], forced, 20))
            ),
        ),
    ]
    assert all('=~"team' in query for query in rendered)
    assert max(len(quote_plus(query)) for query in rendered) < 8 * 1024


@pytest.mark.parametrize(
    ("value", "quoted"),
    [
        ('a"} or vector(1) #', 'a\\"} or vector(1) #'),
        ("back\\slash", "back\\\\slash"),
        ("line\nbreak", "line\\x0abreak"),
        ("nul\0", "nul\\x00"),
        ("$window ${metric}", "$window ${metric}"),
    ],
)
def test_a_label_value_cannot_leave_its_quotes(value: str, quoted: str) -> None:
    rendered = queries.levels("training_loss", (("run", value),), 10, 1)
    assert f'run="{quoted}",' in rendered


def test_a_label_value_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(UsageError, match="write it in valid UTF-8"):
        queries.escaped("\ud800")


@pytest.mark.parametrize("name", ["loss{}", "a or b", "", "1loss", "loss\n", 'x"'])
def test_a_name_that_could_be_promql_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="PromQL is not accepted"):
        queries.levels(name, (("namespace", "flowcon"),), 10, 1)
    for label in (name, "a=b", "with:colon"):
        with pytest.raises(UsageError, match="PromQL is not accepted"):
            queries.facts(((label, "x"),), 10, "min")


def test_a_users_namespace_narrows_the_forced_one_and_never_replaces_it() -> None:
    rendered = queries.loss_series("training_loss", (("namespace", "flowcon"), ("namespace", "other")))
    assert rendered.count('namespace="flowcon"') == 1
    assert rendered.count('namespace="other"') == 1


def test_the_names_of_a_few_pods_are_asked_for_within_what_is_forced_and_as_text() -> None:
    query = queries.metric_names((("namespace", "demo"),), ["10.0.0.1:9464"], ["a.b", 'c"'])
    assert 'namespace="demo",' in query
    assert 'instance=~"10\\\\.0\\\\.0\\\\.1:9464"' in query
    assert 'pod=~"a\\\\.b|c\\""' in query
