"""allocator-only: objects that only their allocating thread accesses."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numapilot

from .table import Cell, by_accesses, ppm, site_cells

COLUMNS = (
    "site",
    "kind",
    "name",
    "instances",
    "alone_instances",
    "accesses",
    "remote_accesses",
    "by_allocator",
    "by_allocator_ppm",
    "alone_accesses",
    "alone_remote_accesses",
)


class _Use:
    """Accesses to one object."""

    accesses = remote = by_allocator = 0
    is_alone = True


class _Sums:
    """Totals of one site."""

    instances = alone_instances = accesses = remote = by_allocator = alone_accesses = alone_remote = 0


def rows(trace: numapilot.Trace) -> Iterator[tuple[Cell, ...]]:
    owner_of = [object.thread for object in trace.objects]
    uses: defaultdict[int, _Use] = defaultdict(_Use)
    for access in trace.flow():
        number = access.object
        if number is None or owner_of[number] is None or not access.is_memory_access:
            continue
        use = uses[number]
        use.accesses += access.weight
        use.remote += access.weight if access.is_remote else 0
        if access.thread == owner_of[number]:
            use.by_allocator += access.weight
        else:
            use.is_alone = False
    sites: defaultdict[int, _Sums] = defaultdict(_Sums)
    for number, use in uses.items():
        sums = sites[trace.objects[number].site]
        sums.instances += 1
        sums.accesses += use.accesses
        sums.remote += use.remote
        sums.by_allocator += use.by_allocator
        if use.is_alone:
            sums.alone_instances += 1
            sums.alone_accesses += use.accesses
            sums.alone_remote += use.remote
    for site, of in sorted(sites.items(), key=lambda item: by_accesses(item[0], item[1].accesses)):
        all_of_them = (of.instances, of.alone_instances, of.accesses, of.remote, of.by_allocator)
        alone = (of.alone_accesses, of.alone_remote)
        yield *site_cells(trace, site), *all_of_them, ppm(of.by_allocator, of.accesses), *alone
