"""remote: how many accesses are remote, and which share."""

from __future__ import annotations

from collections.abc import Iterator

import numapilot

from .table import Cell, ppm

COLUMNS = (
    "samples",
    "accesses",
    "known_samples",
    "known_accesses",
    "remote_samples",
    "remote_accesses",
    "remote_ppm",
)


def rows(trace: numapilot.Trace) -> Iterator[tuple[Cell, ...]]:
    samples = accesses = known_samples = known = remote_samples = remote = 0
    for access in trace.flow():
        if not access.is_memory_access:
            continue
        samples += 1
        accesses += access.weight
        is_remote = access.is_remote
        if is_remote is None:
            continue
        known_samples += 1
        known += access.weight
        if is_remote:
            remote_samples += 1
            remote += access.weight
    yield samples, accesses, known_samples, known, remote_samples, remote, ppm(remote, known)
