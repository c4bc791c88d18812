"""Reads numapilot's recordings: objects, threads, flows of accesses, tables, figures, findings and predictions.

    import numapilot

    with numapilot.open("run.numatrace") as trace:
        for access in trace.objects[7].flow():
            print(access.time_ns, access.thread, access.node, access.home)

docs/python.md is the manual.
"""

from enum import IntEnum

from ._native import (
    Access,
    ClosedError,
    Document,
    Error,
    Estimate,
    Flow,
    Frame,
    Machine,
    Object,
    Picture,
    Process,
    Rows,
    Site,
    Statistics,
    Table,
    Thread,
    Trace,
    __version__,
    machines,
    open,
)


class Code(IntEnum):
    """The `code` of an `Error`. The numbers are those of the C API (numapilot.h)."""

    BAD_ARGUMENT = 1
    BAD_HANDLE = 2
    IO = 3
    BAD_TRACE = 4
    NOT_FOUND = 5
    BUSY = 6
    INTERNAL = 8
    MODEL = 9


__all__ = [
    "Access",
    "ClosedError",
    "Code",
    "Document",
    "Error",
    "Estimate",
    "Flow",
    "Frame",
    "Machine",
    "Object",
    "Picture",
    "Process",
    "Rows",
    "Site",
    "Statistics",
    "Table",
    "Thread",
    "Trace",
    "__version__",
    "machines",
    "open",
]
