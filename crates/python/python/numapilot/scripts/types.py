"""types: which object types (sites) are accessed most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numapilot

from .table import Cell, by_accesses, ppm, site_cells, sites_of

COLUMNS = (
    "site",
    "kind",
    "name",
    "file",
    "line",
    "instances",
    "bytes",
    "samples",
    "accesses",
    "share_ppm",
    "remote_accesses",
    "remote_ppm",
    "remote_share_ppm",
)


class _Sums:
    instances = bytes = samples = accesses = known = remote = 0


def rows(trace: numapilot.Trace) -> Iterator[tuple[Cell, ...]]:
    site_of = sites_of(trace)
    sites: defaultdict[int | None, _Sums] = defaultdict(_Sums)
    accessed: set[int] = set()
    for access in trace.flow():
        if not access.is_memory_access:
            continue
        number = access.object
        sums = sites[None if number is None else site_of[number]]
        sums.samples += 1
        sums.accesses += access.weight
        if access.is_remote is not None:
            sums.known += access.weight
            sums.remote += access.weight if access.is_remote else 0
        if number is not None:
            accessed.add(number)
    for number in accessed:
        sums = sites[site_of[number]]
        sums.instances += 1
        sums.bytes += trace.objects[number].bytes
    accesses = sum(sums.accesses for sums in sites.values())
    remote = sum(sums.remote for sums in sites.values())
    for site, of in sorted(sites.items(), key=lambda item: by_accesses(item[0], item[1].accesses)):
        place: tuple[Cell, Cell] = (None, None) if site is None else (trace.sites[site].file, trace.sites[site].line)
        shares = (ppm(of.accesses, accesses), of.remote, ppm(of.remote, of.known), ppm(of.remote, remote))
        yield *site_cells(trace, site), *place, of.instances, of.bytes, of.samples, of.accesses, *shares
