"""Moves pods by eviction, and steers their replacements by a scheduling gate."""
