"""Jobs and curves from CSV files: what a row means, and what is refused in which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from slopewise.errors import UsageError
from slopewise.simulator.curves import Points
from slopewise.simulator.scenario.scenario import Scenario, load_scenario
from slopewise.simulator.workload import draw
from slopewise.simulator.world.model import SimJob

SCENARIO = """
apiVersion: slopewise.dev/v1alpha1
kind: Scenario
metadata: {name: mine}
spec:
  nodes: [{name: n1, cpu: 4}]
  jobs: data/jobs.csv
  models:
    own: {workCpuSeconds: 50, curve: {csv: CURVE}}
"""

JOBS = """# of the cluster in March
name, model, arriveSeconds, workCpuSeconds, parallelism, request, migratable

7, own, 0, 120, 2, 500m, false
late, gru, "[10, 20]", , , 1,
"""

CURVE = "epoch,accuracy\n1,0.4\n2,0.9\n4,0.65\n"

WHOLE_CURVE = "{file: data/own.csv, x: epoch, y: accuracy, better: more}"


def load(folder: Path, *, jobs: str | None = JOBS, table: str | None = CURVE, settings: str = WHOLE_CURVE) -> Scenario:
    (folder / "data").mkdir()
    (folder / "mine.yaml").write_text(SCENARIO.replace("CURVE", settings))
    for name, text in (("jobs.csv", jobs), ("own.csv", table)):
        if text is not None:
            (folder / "data" / name).write_text(text)
    return load_scenario(str(folder / "mine.yaml"))


def jobs_of(scenario: Scenario) -> dict[str, SimJob]:
    return {job.name: job for job in draw(scenario, 1).jobs}


class TestJobs:
    def test_a_row_is_a_job_and_an_empty_cell_is_left_out(self, tmp_path: Path) -> None:
        jobs = jobs_of(load(tmp_path))
        assert list(jobs) == ["7", "late"]
        first, late = jobs["7"], jobs["late"]
        assert (first.model, first.arrive_seconds, first.work_cpu_seconds) == ("own", 0.0, 120.0)
        assert (first.parallelism_cores, first.allocation.request_millicores, first.migratable) == (2.0, 500, False)
        assert (late.model, late.parallelism_cores, late.allocation.request_millicores) == ("gru", 1.0, 1000)
        assert late.migratable
        assert 10 <= late.arrive_seconds <= 20

    @pytest.mark.parametrize(
        ("jobs", "message"),
        [
            (
                None,
                r"spec\.jobs: .*jobs\.csv cannot be read \(No such file or directory\); give the path of a readable",
            ),
            ("", r"spec\.jobs: .*jobs\.csv has no rows; write the names of the columns, then a row for each job\.$"),
            ("name,model\na\n", r"spec\.jobs: .*row 1 has not as many cells as there are columns; complete it\.$"),
            ('name,model\n"a,gru\n', r"spec\.jobs: .*is not CSV "),
            ("name,model,work\na,gru,3\n", r"spec\.jobs\.0\.work: unknown key"),
            ("name,model,workCpuSeconds\na,gru,long\n", r"spec\.jobs\.0\.workCpuSeconds: must be a number"),
            ("name,model\na,mine\n", r"model 'mine'"),
        ],
    )
    def test_a_mistake_is_reported_in_one_sentence(self, tmp_path: Path, jobs: str | None, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            load(tmp_path, jobs=jobs)


class TestCurves:
    def test_the_last_row_is_the_end_and_a_metric_that_should_rise_is_turned(self, tmp_path: Path) -> None:
        curve = jobs_of(load(tmp_path))["7"].curve
        assert isinstance(curve, Points)
        # 0.4 is the first value, also before its epoch, and 0.9 the best; at the end half of it is lost again.
        assert [curve.at(x) for x in (0.0, 0.25, 0.375, 0.5, 1.0)] == pytest.approx([1.0, 1.0, 0.5, 0.0, 0.5])
        assert curve.reached(0.9) == pytest.approx(0.475)

    def test_a_path_alone_is_a_loss_over_the_part_of_the_work(self, tmp_path: Path) -> None:
        scenario = load(tmp_path, table="done_ratio,loss\n0,3\n0.5,1\n1,1\n", settings="data/own.csv")
        curve = jobs_of(scenario)["7"].curve
        assert curve is not None
        assert [curve.at(x) for x in (0.0, 0.25, 0.5, 1.0)] == pytest.approx([1.0, 0.5, 0.0, 0.0])

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (None, r"own\.csv cannot be read \(No such file or directory\); give the path of a readable CSV file\.$"),
            ("", r"needs the columns epoch and accuracy, and has none\.$"),
            ("epoch,loss\n1,2\n", r"needs the columns epoch and accuracy, and has epoch, loss\.$"),
            ("epoch,accuracy\n1,high\n", r"holds something other than numbers below its first row\.$"),
            ("epoch,accuracy\n-1,1\n2,3\n", r"epoch must begin at 0 or above, increase, and end above 0\.$"),
            ("epoch,accuracy\n1,0.1\n1,0.2\n2,0.3\n", r"x must increase, and 0\.5 follows 0\.5; "),
            ("epoch,accuracy\n1,0.1\n2,NaN\n", r"a value is not finite"),
            ("epoch,accuracy\n1,0.9\n2,0.8\n", r"never falls below -0\.9, its first value"),
        ],
    )
    def test_a_mistake_is_one_sentence_with_its_place(self, tmp_path: Path, table: str | None, message: str) -> None:
        with pytest.raises(UsageError, match=rf"spec\.models\.own\.curve\.csv: .*{message}"):
            load(tmp_path, table=table)
