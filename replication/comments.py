"""Why our figures differ from the printed ones where they do, in words, by the name of the setting."""

from __future__ import annotations

COMMENTS: dict[str, str] = {}
