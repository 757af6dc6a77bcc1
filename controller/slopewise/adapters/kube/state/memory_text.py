"""The memory of one pod as the text that its JobGrowth stores: JSON, compressed where a workload has many pods.

Worked example: in the middle of a run a pod's memory with 113 raw points is 5.1 KB as JSON and 2.7 KB compressed. Each
of 10 pods keeps 100 points, 2.3 KB, and each of 16 none, 1 KB: their JobGrowths are below 32 KB.
"""

from __future__ import annotations

import base64
import zlib

import msgspec

from slopewise.estimators.raw_points import shortened
from slopewise.model import MEMORY_JSON, JobMemory

COMPRESSED = "zlib:"
"""A text that begins so goes on in base 85; JSON begins with a brace."""

READABLE_PODS = 4
"""The memory of no more pods than that stays JSON, for people who read it."""

POINTS_STORED = 1000
"""Raw points of all pods of a workload together."""

LEARNING_PODS = 12
"""With more pods than that no points and no state of the policy are stored: they begin again with the next leader."""

MAX_JSON_BYTES = 1_000_000


def memory_text(known: JobMemory, pods: int) -> str:
    """The memory of one of so many pods."""
    encoded = MEMORY_JSON.encode(_learning_part(known, pods))
    if pods <= READABLE_PODS:
        return encoded.decode()
    return COMPRESSED + base64.b85encode(zlib.compress(encoded, level=9)).decode()


def _learning_part(known: JobMemory, pods: int) -> JobMemory:
    if pods > LEARNING_PODS:
        return known.altered(points=None, state="", ends=None)
    most = POINTS_STORED // pods
    if known.points is None or known.points.count <= most:
        return known
    return known.altered(points=shortened(known.points, most))


def read_memory(text: str) -> JobMemory:
    """The memory as it was stored; msgspec.DecodeError, ValueError or zlib.error where it is damaged."""
    if not text.startswith(COMPRESSED):
        return msgspec.json.decode(text or "{}", type=JobMemory)
    reader = zlib.decompressobj()
    encoded = reader.decompress(base64.b85decode(text.removeprefix(COMPRESSED)), MAX_JSON_BYTES)
    if reader.unconsumed_tail or not reader.eof:
        raise ValueError("the compressed memory is cut off, or too large")
    return msgspec.json.decode(encoded, type=JobMemory)
