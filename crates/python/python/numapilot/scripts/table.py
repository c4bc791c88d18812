"""What the scripts share: sites as cells, shares in parts per million, rows as CSV."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Protocol, TextIO, Union

import numapilot

SCRIPTS = ("remote", "types", "pattern", "first-touch", "handover", "read-only", "false-sharing", "allocator-only")

# An integer, a text, or None: unknown or undefined.
Cell = Union[int, str, None]


class Script(Protocol):
    """A module of a script. `pattern` takes an object, too."""

    COLUMNS: Sequence[str]

    def rows(self, trace: numapilot.Trace, *object: str) -> Iterable[Sequence[Cell]]: ...


def script(name: str) -> Script:
    """The module of a script."""
    return importlib.import_module(f"{__package__}.{name.replace('-', '_')}")


def ppm(part: int, whole: int) -> int | None:
    """Parts per million, rounded down; None where the whole is 0."""
    return 1000000 * part // whole if whole > 0 else None


def sites_of(trace: numapilot.Trace) -> list[int]:
    """The site of each object."""
    return [row.site for row in trace.objects]


def site_cells(trace: numapilot.Trace, site: int | None) -> tuple[Cell, Cell, Cell]:
    """site, kind, name."""
    if site is None:
        return None, "unknown", None
    row = trace.sites[site]
    return site, row.kind, row.name


def by_accesses(site: int | None, accesses: int) -> tuple[int, bool, int]:
    """Sorts by accesses, most first, then by site, the unknown one last."""
    return -accesses, site is None, site or 0


def _text(cell: Cell) -> str:
    if cell is None:
        return ""
    if isinstance(cell, int):
        return str(cell)
    cell = cell.replace("\0", "\ufffd")
    if any(character in cell for character in ',"\r\n'):
        return '"' + cell.replace('"', '""') + '"'
    return cell


def write(of: Script, arguments: Sequence[str], out: TextIO) -> None:
    """Writes the table of a trace (and, for `pattern`, of an object in it) as CSV."""
    path, *rest = arguments
    if len(rest) > (of.__name__.endswith(".pattern")):  # type: ignore[attr-defined]
        raise ValueError("give one trace, and with pattern a site (S3) or an instance (17) if you like")
    with numapilot.open(path) as trace:
        out.write(",".join(of.COLUMNS) + "\n")
        for row in of.rows(trace, *rest):
            out.write(",".join(map(_text, row)) + "\n")
