"""first-touch: which thread accessed each object first, and which threads later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numapilot

from .table import Cell, by_accesses, ppm, site_cells, sites_of

COLUMNS = (
    "site",
    "kind",
    "name",
    "instances",
    "first_by_allocator",
    "shared_instances",
    "accesses",
    "by_first_thread",
    "by_first_node",
    "later_ppm",
)


class _Sums:
    instances = first_by_allocator = shared = accesses = by_first_thread = by_first_node = 0


def rows(trace: numapilot.Trace) -> Iterator[tuple[Cell, ...]]:
    site_of = sites_of(trace)
    sites: defaultdict[int, _Sums] = defaultdict(_Sums)
    first: dict[int, tuple[int, int | None]] = {}
    shared: set[int] = set()
    for access in trace.flow():
        number = access.object
        if number is None or not access.is_memory_access:
            continue
        sums = sites[site_of[number]]
        if number not in first:
            first[number] = (access.thread, access.node)
            sums.instances += 1
            sums.first_by_allocator += trace.objects[number].thread == access.thread
        thread, node = first[number]
        sums.accesses += access.weight
        if thread == access.thread:
            sums.by_first_thread += access.weight
        elif number not in shared:
            shared.add(number)
            sums.shared += 1
        if node is not None and node == access.node:
            sums.by_first_node += access.weight
    for site, of in sorted(sites.items(), key=lambda item: by_accesses(item[0], item[1].accesses)):
        later = ppm(of.accesses - of.by_first_thread, of.accesses)
        counts = (of.instances, of.first_by_allocator, of.shared, of.accesses, of.by_first_thread, of.by_first_node)
        yield *site_cells(trace, site), *counts, later
