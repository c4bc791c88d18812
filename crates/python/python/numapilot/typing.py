"""Types of arguments, for those who annotate their own functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Optional, TypedDict, Union

Kind = Literal["static", "heap", "anonymous", "allocator", "file", "section", "stack", "shared", "unknown"]
View = Literal["traffic", "matrix", "objects", "timeline", "pages", "flame", "imbalance"]
Progress = Union[Callable[[float], object], bool, None]
"""A function of the share that is done, or True for text on standard error."""


class Where(TypedDict, total=False):
    """Conditions on accesses; all that are given must hold, and None is none."""

    time: Optional[tuple[Optional[int], Optional[int]]]
    """From, and before which."""
    thread: Optional[int]
    process: Optional[int]
    site: Optional[int]
    kind: Optional[Kind]
    node: Optional[int]
    """Node of the CPU that made the access."""
    home: Optional[int]
    """Node of the memory."""
    write: Optional[bool]
    remote: Optional[bool]
    """Accesses of unknown home are neither."""


class Filter(Where, total=False):
    """And of one object instance."""

    object: Optional[int]


class TrafficClass(TypedDict, total=False):
    """Threads of one node that behave alike."""

    node: int
    """Needed."""
    threads: float
    outstanding: float
    """Accesses that a thread keeps outstanding; 1 is a dependent chase."""
    think_ns: float
    """A thread's own work per access."""
    reads: dict[int, float]
    """Share of its accesses that read from each node's memory. With `writes` they sum to 1."""
    writes: dict[int, float]
