"""Figures of benchmarks: what they are called, and their file."""

import json
import math
from dataclasses import asdict, dataclass

VERSION = 1


@dataclass(frozen=True)
class Figure:
    """One result of numapilot. `better`: "less", "more", or "neither" for one that is compared with a peer but is no cost (a latency that was measured)."""

    benchmark: str
    name: str
    value: float
    unit: str
    better: str = "less"
    goal: str = ""
    peer: str = ""
    peer_value: float | None = None

    @property
    def key(self):
        return self.benchmark, self.name


def is_number(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def as_json(figures, about):
    """The file of a run: its figures, and `about` (date, machine, command, revision)."""
    return json.dumps({"version": VERSION, **about, "figures": [asdict(figure) for figure in figures]}, indent=1) + "\n"


def shown(value, unit):
    """A value with three significant digits and its unit."""
    if value is None:
        return "-"
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    digits = f"{value:,.{max(0, 2 - magnitude)}f}"
    return f"{digits} {unit}".rstrip()
