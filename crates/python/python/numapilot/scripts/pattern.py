"""pattern: the accesses to an object type, or to one instance, by thread, accessing node, home node and time, as reads and writes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numapilot

from .table import Cell, sites_of

COLUMNS = ("site", "thread", "node", "home", "slice", "samples", "reads", "writes", "first_ns", "last_ns")

_UNKNOWN = 1 << 32


class _Sums:
    samples = reads = writes = first_ns = last_ns = 0


def _flow(trace: numapilot.Trace, name: str | None) -> numapilot.Flow:
    if name is None:
        return trace.flow()
    found = re.fullmatch(r"([Ss]?)([0-9]+)", name)
    if found is None:
        raise ValueError(f"{name}: name a site (S3) or an instance (17)")
    number = int(found[2])
    return trace.flow(site=number) if found[1] else trace.flow(object=number)


def rows(trace: numapilot.Trace, object: str | None = None) -> Iterator[tuple[Cell, ...]]:
    """The rows of all sites, or of `object`: "S3" is a site, "17" an instance."""
    last_ns = max((access.time_ns for access in trace.flow()), default=0)
    site_of = sites_of(trace)
    groups: dict[tuple[int, ...], _Sums] = {}
    for access in _flow(trace, object):
        if not access.is_memory_access:
            continue
        site = _UNKNOWN if access.object is None else site_of[access.object]
        node = _UNKNOWN if access.node is None else access.node
        home = _UNKNOWN if access.home is None else access.home
        key = (site, access.thread, node, home, 10 * access.time_ns // (last_ns + 1))
        sums = groups.get(key)
        if sums is None:
            sums = groups[key] = _Sums()
            sums.first_ns = access.time_ns
        sums.samples += 1
        if access.is_write:
            sums.writes += access.weight
        else:
            sums.reads += access.weight
        sums.last_ns = access.time_ns
    for group, of in sorted(groups.items(), key=lambda item: item[0]):
        cells = (None if cell == _UNKNOWN else cell for cell in group)
        yield *cells, of.samples, of.reads, of.writes, of.first_ns, of.last_ns
