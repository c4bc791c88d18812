"""Types of arguments, for those who annotate their own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Optional, TypedDict, Union

Kind = Literal["static", "heap", "anonymous", "allocator", "file", "section", "stack", "shared", "unknown", "pool"]
View = Literal["traffic", "matrix", "objects", "timeline", "pages", "flame", "imbalance"]
Progress = Union[Callable[[float], object], bool, None]
"""A function that takes the share that is done (0 to 1), or True for text on standard error."""


class Where(TypedDict, total=False):
    """Conditions on accesses: every one that is given must hold, and None is no condition."""

    time: Optional[tuple[Optional[int], Optional[int]]]
    """The first time, and the time before which accesses pass: (from, to) in nanoseconds of program time."""
    thread: Optional[int]
    process: Optional[int]
    site: Optional[int]
    kind: Optional[Kind]
    node: Optional[int]
    """Node of the CPU that made the access."""
    home: Optional[int]
    """Home node of the page."""
    write: Optional[bool]
    remote: Optional[bool]
    """Accesses to a page of unknown home pass neither True nor False."""


class Filter(Where, total=False):
    """Conditions on accesses, with one on the object instance."""

    object: Optional[int]


class TrafficClass(TypedDict, total=False):
    """Threads of one node that behave alike."""

    node: int
    """Node on which the threads run. Required."""
    threads: float
    outstanding: float
    """Accesses that a thread keeps outstanding; 1: each access depends on the one before (pointer chasing)."""
    think_ns: float
    """Time that a thread computes per access, ns."""
    reads: dict[int, float]
    """Share of its accesses that read from each node's memory. With `writes` they sum to 1."""
    writes: dict[int, float]
