"""handover: how long one thread uses an object before another one accesses it (the example of MemProf's paper, USENIX ATC 2012).

Accesses of every level count, those that a cache of the accessing core or node answered too: `scripts/README.md`, "handover".
"""

from __future__ import annotations

from collections.abc import Iterator

import numapilot

from .table import Cell

COLUMNS = ("object", "site", "name", "handovers", "sum_ns", "mean_ns")


def handovers(object: numapilot.Object) -> tuple[int, int]:
    """Number of handovers of the object, and the sum of their times in ns."""
    count = sum_ns = before_ns = 0
    thread = None
    for access in object.flow():
        if thread is not None and access.thread != thread:
            sum_ns += access.time_ns - before_ns
            count += 1
        thread, before_ns = access.thread, access.time_ns
    return count, sum_ns


def rows(trace: numapilot.Trace) -> Iterator[tuple[Cell, ...]]:
    found = [(object, *handovers(object)) for object in trace.objects if len(object) > 1]
    for object, count, sum_ns in sorted(found, key=lambda row: (-row[1], row[0].number)):
        if count > 0:
            yield object.number, object.site, object.name, count, sum_ns, sum_ns // count
