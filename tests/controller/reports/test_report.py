"""A report is drawn to a terminal and as a page from the same sections."""

from __future__ import annotations

from rich.text import Text as RichText
from support.pages import HOSTILE, Page
from support.printing import printed, words

from slopewise.reports import plots
from slopewise.reports.cells import Cell, Row
from slopewise.reports.columns import named, sized
from slopewise.reports.page import page_of
from slopewise.reports.plots import Area, Axis, Box, Line, Mark, Plot
from slopewise.reports.report import (
    Cards,
    Chart,
    Comparison,
    Facts,
    Jobs,
    Notes,
    Part,
    Report,
    Section,
    Table,
    Text,
    Tiles,
    notes_of,
    terminal,
)


def a_report() -> Report:
    columns = [named("JOB", ["job"], str), sized("LENGTH", ["job"], lambda each: RichText(str(len(each))), "right")]
    compared = Comparison("Measure", ["fair", "job"], [("", [Row("Makespan", (Cell("1 s"), Cell("2 s", "×2.00")))])])
    return Report(
        "Report",
        [
            Section("First", [Tiles([("what", "1", "of 2", "better")])], on="page"),
            Section("Second", [compared, Text("job")]),
            Section("Third", [Table(columns, ["job"], ("LENGTH", "JOB")), Facts([("Read from", "job")])]),
            Section("Fourth", [Notes([("better", "green", ["job"])], "it"), *notes_of(["job"])], on="terminal"),
            Section("Fifth", notes_of([])),
        ],
        notes=["a note"],
    )


def foreign(name: str, ours: str) -> Report:
    """Every kind of part, with this for each text that may be foreign and another for those that are made here."""
    cell = Cell(ours, ours, note=ours)
    x, y = (Axis(0.0, 1.0, ((0.5, name),), name) for _ in "xy")
    plot = Plot(
        x,
        y,
        100,
        lines=(Line(name, [(0.0, 0.0), (1.0, 1.0)], "#000"),),
        areas=(Area(name, [0.0, 1.0], [0.0, 0.0], [1.0, 1.0], "#000", 0),),
        boxes=(Box(0.0, 1.0, 0.0, 1.0, "#000", title=name, text=name),),
        marks=(Mark(0.5, 0.5, "diamond", title=name),),
        texts=(plots.Text(0.0, 0.0, name),),
        key=((name, "#000"),),
        unit=name,
    )
    columns = [named(ours, [name], str), sized(f"{ours} ", [ours], RichText)]
    parts: list[Part] = [
        Comparison(name, [name], [(ours, [Row(name, (cell,))])], caption=ours),
        Table(columns, [name], (ours, f"{ours} "), caption=ours),
        *(Text(name, style) for style in ("", "code")),
        *(Facts([(ours, name)]), Notes([("better", "green", [name])], ours), Tiles([(ours, ours, ours, "better")])),
        *(Chart("chart", name, plot, name, name), Jobs([(name, "#000")])),
    ]
    return Report(name, [Section(name, parts), Section("", [Cards([Section(name, parts[:1])])])], name, [name], [name])


def test_a_terminal_has_the_sections_without_headings_and_an_empty_line_between() -> None:
    lines = [words(line) for line in printed(terminal(a_report())).splitlines()]
    assert lines == [
        "Measure fair job", "Makespan 1 s 2 s ×2.00", "job", "",
        "LENGTH JOB", "3 job", "Read from job", "",
        "better it: job", "note job",
    ]  # fmt: skip


def test_a_note_stands_below_its_figure_on_a_terminal() -> None:
    noted = Comparison("Measure", ["fair"], [("", [Row("Makespan", (Cell("1 s", note="over 1 common job"),))])])
    assert words(printed(noted)) == "Measure fair Makespan 1 s (over 1 common job)"


def test_a_page_has_the_headings_and_what_is_for_a_page_only() -> None:
    page = Page(page_of(a_report()))
    assert "First what 1 of 2 Second Measure fair job Makespan 1 s 2 s ×2.00 job Third LENGTH JOB 3 job" in page.text
    assert "Fourth" not in page.text
    assert "Fifth" not in page.text
    assert page.text.index("Read this first") < page.text.index("First")


def test_foreign_text_adds_no_element_and_no_attribute() -> None:
    plainly = Page(page_of(foreign("job", "job")))
    for name in HOSTILE:
        page = Page(page_of(foreign(name, name)))
        assert page.tags == plainly.tags
        assert [key for key, _ in page.attributes] == [key for key, _ in plainly.attributes]
        assert list(page.figures) == ["chart"]
        assert "\x1b[31m" not in printed(terminal(foreign(name, "ours")))
