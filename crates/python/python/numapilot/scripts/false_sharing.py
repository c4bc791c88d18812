"""false-sharing: pages that hold objects of several threads, each used by one thread only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import numapilot

from .table import Cell

COLUMNS = ("process", "page", "objects", "threads", "nodes", "samples", "accesses", "remote_accesses")

_PAGE_BYTES = 4096


class _SharedPage:
    samples = accesses = remote = 0

    def __init__(self) -> None:
        self.objects: set[int] = set()
        self.threads: set[int] = set()
        self.nodes: set[int] = set()


def rows(trace: numapilot.Trace) -> Iterator[tuple[Cell, ...]]:
    users: defaultdict[int, set[int]] = defaultdict(set)
    for access in trace.flow():
        if access.object is not None and access.is_memory_access:
            users[access.object].add(access.thread)
    process_of = [thread.process for thread in trace.threads]
    pages: defaultdict[tuple[int, int], _SharedPage] = defaultdict(_SharedPage)
    for access in trace.flow():
        if access.object is None or not access.is_memory_access or len(users[access.object]) > 1:
            continue
        page = pages[process_of[access.thread], access.address // _PAGE_BYTES * _PAGE_BYTES]
        page.samples += 1
        page.accesses += access.weight
        page.remote += access.weight if access.is_remote else 0
        page.objects.add(access.object)
        page.threads.add(access.thread)
        if access.node is not None:
            page.nodes.add(access.node)
    met = [(at, of) for at, of in pages.items() if len(of.threads) >= 2 and len(of.nodes) >= 2]
    for (process, page_address), of in sorted(met, key=lambda item: (-item[1].accesses, item[0])):
        counts = (len(of.objects), len(of.threads), len(of.nodes), of.samples, of.accesses, of.remote)
        yield process, page_address, *counts
