import pytest

from grafana.queries import documented_metrics, metric_names, panel_queries


@pytest.mark.parametrize(
    ("promql", "expected"),
    [
        ("up", {"up"}),
        ('sum by (class) (slopewise_job_class{job_name=~"a|b"} == 1)', {"slopewise_job_class"}),
        ("60 * sum by (result) (rate(a_total[1m]))", {"a_total"}),
        ('rate(a_total[5m]) / on (b) group_left (c) d{e="f{g"}', {"a_total", "d"}),
        ("time() - max(a > 0) or absent(b offset 5m)", {"a", "b"}),
        ("max_over_time(level:metric:operation[10m]) unless x == bool 1", {"level:metric:operation", "x"}),
    ],
)
def test_an_expression_names_its_metrics_and_nothing_else(promql: str, expected: set[str]) -> None:
    assert metric_names(promql) == expected


def test_every_variable_of_a_query_is_filled_in_for_all_jobs() -> None:
    jobs, nodes = {"name": "job", "type": "query", "allValue": ".*"}, {"name": "node", "type": "query"}
    source = {"name": "datasource", "type": "datasource"}
    target = {"expr": 'rate(a{b=~"$job",c=~"$node"}[$__rate_interval])'}
    dashboard = {
        "templating": {"list": [source, jobs, nodes]},
        "panels": [{"type": "stat", "title": "T", "targets": [target]}],
    }

    assert panel_queries(dashboard, rate_interval="20s") == [("T", 'rate(a{b=~".*",c=~".+"}[20s])')]


def test_panels_of_a_collapsed_row_are_not_forgotten() -> None:
    inner = {"type": "stat", "title": "inner", "targets": [{"expr": "a"}]}
    dashboard = {"templating": {"list": []}, "panels": [{"type": "row", "title": "row", "panels": [inner]}]}

    assert panel_queries(dashboard) == [("inner", "a")]


def test_the_metrics_page_promises_each_name_of_a_row_and_the_three_parts_of_a_histogram() -> None:
    names = documented_metrics()

    assert {"training_steps_total", "training_samples_total", "slopewise_job_class"} <= names
    assert {f"slopewise_pass_duration_seconds_{part}" for part in ("bucket", "sum", "count")} <= names
    assert "slopewise_pass_duration_seconds" not in names
    assert not {"metric", "namespace", "stage"} & names
