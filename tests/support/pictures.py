"""What an SVG shows: its labels and its lines. Bytes differ with the last bit of a sum, which no eye sees."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

SAME_POINTS = 0.5
"""Half a point of a picture that is some hundred wide."""

Line = tuple[str, list[float]]


def labels(picture: Path) -> list[str]:
    """The texts, which matplotlib writes as text or as outlines below a comment."""
    written = re.findall(r"<!-- (.+?) -->|<text[^>]*>(.+?)</text>", picture.read_text(encoding="utf-8"))
    return [text for either in written for text in either if text]


def lines(picture: Path) -> list[Line]:
    """The style and the coordinates of everything drawn, without the outlines of letters (`defs`, groups `text_N`)."""
    found: list[Line] = []
    collect(ET.parse(picture).getroot(), found)
    return found


def collect(element: ET.Element, found: list[Line]) -> None:
    if element.tag.endswith("defs") or element.get("id", "").startswith("text_"):
        return
    places = " ".join(element.get(name, "") for name in ("d", "x", "y", "width", "height"))
    if numbers := [float(each) for each in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", places)]:
        style = re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", element.get("style", ""))
        found.append((style, numbers))
    for child in element:
        collect(child, found)


def show_the_same(one: Path, other: Path) -> bool:
    """Whether both have the same labels, and the same lines in the same places."""
    ours, theirs = lines(one), lines(other)
    return (
        labels(one) == labels(other)
        and [(style, len(numbers)) for style, numbers in ours] == [(style, len(numbers)) for style, numbers in theirs]
        and all(
            numbers == pytest.approx(others, abs=SAME_POINTS)
            for (_, numbers), (_, others) in zip(ours, theirs, strict=True)
        )
    )
