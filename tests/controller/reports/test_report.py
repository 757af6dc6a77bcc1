"""A report is drawn to a terminal and as a page from the same sections."""

from __future__ import annotations

from rich.text import Text as RichText
from support.pages import HOSTILE, Page
from support.printing import printed, words

from slopewise.reports.cells import Cell, Row
from slopewise.reports.columns import named, sized
from slopewise.reports.page import page_of
from slopewise.reports.report import Comparison, Facts, Notes, Report, Section, Table, Text, Tiles, notes_of, terminal


def a_report(name: str = "job") -> Report:
    columns = [named("JOB", [name], str), sized("LENGTH", [name], lambda each: RichText(str(len(each))), "right")]
    compared = Comparison("Measure", ["fair", name], [("", [Row("Makespan", (Cell("1 s"), Cell("2 s", "×2.00")))])])
    return Report(
        f"Report of {name}",
        [
            Section("First", [Tiles([("what", "1", "of 2", "better")])], on="page"),
            Section("Second", [compared, Text(name)]),
            Section("Third", [Table(columns, [name], ("LENGTH", "JOB")), Facts([("Read from", name)])]),
            Section("Fourth", [Notes([("better", "green", [name])], "it"), *notes_of([name])], on="terminal"),
            Section("Fifth", notes_of([])),
        ],
        notes=[name],
    )


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
    plainly = Page(page_of(a_report()))
    for name in HOSTILE:
        page = Page(page_of(a_report(name)))
        assert page.tags == plainly.tags
        assert {key for key, _ in page.attributes} == {key for key, _ in plainly.attributes}
        assert "\x1b[31m" not in printed(terminal(a_report(name)))
