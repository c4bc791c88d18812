"""read-only: which share of the accesses to each object type writes; where no write was sampled, the upper bound of this share (95 %)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numapilot

from .table import Cell, by_accesses, ppm, site_cells, sites_of

COLUMNS = (
    "site",
    "kind",
    "name",
    "samples",
    "accesses",
    "write_samples",
    "write_accesses",
    "write_ppm",
    "bound_ppm",
)


class _Sums:
    samples = accesses = write_samples = writes = 0


def bound_ppm(samples: int) -> int:
    """Upper bound, with 95 % confidence, on the share of writes if none of this many samples writes."""
    return min(1000000, -(-3000000 // samples))


def rows(trace: numapilot.Trace) -> Iterator[tuple[Cell, ...]]:
    site_of = sites_of(trace)
    sites: defaultdict[int | None, _Sums] = defaultdict(_Sums)
    for access in trace.flow():
        if not access.is_memory_access:
            continue
        sums = sites[None if access.object is None else site_of[access.object]]
        sums.samples += 1
        sums.accesses += access.weight
        if access.is_write:
            sums.write_samples += 1
            sums.writes += access.weight
    for site, of in sorted(sites.items(), key=lambda item: by_accesses(item[0], item[1].accesses)):
        bound = None if of.write_samples > 0 else bound_ppm(of.samples)
        counts = (of.samples, of.accesses, of.write_samples, of.writes)
        yield *site_cells(trace, site), *counts, ppm(of.writes, of.accesses), bound
