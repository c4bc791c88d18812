"""docs/performance.md: every figure with its goal, its peer, and where it was measured. The figures are kept in tools/benchmarks/measured.json."""

import json
import os
import re

import files
from benchmarks.base import ROOT
from benchmarks.figures import Figure, shown

PAGE = os.path.join(ROOT, "docs", "performance.md")
KEPT = os.path.join(ROOT, "tools", "benchmarks", "measured.json")
BEGIN, END = "<!-- figures: written by tools/bench --page -->", "<!-- end of the figures -->"
NOT_MEASURED = "not measured on this version"
ABOUT = ("date", "machine", "command", "revision", "source")


def load(path=KEPT):
    """Entries of the page: a figure's fields, and those of ABOUT. A value of null was not measured on this version."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)["figures"]


def merged(entries, figures, about):
    """The entries with the figures of a run in place of what they were; new ones come last of their benchmark. `about` has the fields of ABOUT."""
    found = {figure.key: figure for figure in figures}
    fields = {field: about.get(field, "") for field in ABOUT}
    fresh = {key: {**figure.__dict__, **fields} for key, figure in found.items()}
    kept = [fresh.pop((entry["benchmark"], entry["name"]), entry) for entry in entries]
    for entry in fresh.values():
        same = [at for at, other in enumerate(kept) if other["benchmark"] == entry["benchmark"]]
        kept.insert(same[-1] + 1 if same else len(kept), entry)
    return kept


def as_json(entries):
    """One entry a line, so that a renewed figure is one changed line."""
    lines = ",\n".join(" " + json.dumps(entry, ensure_ascii=False) for entry in entries)
    return f'{{"figures": [\n{lines}\n]}}\n'


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


def peer_words(entry):
    if not entry.get("peer"):
        return ""
    value = entry.get("peer_value")
    return f"{entry['peer']}: {shown(value, entry['unit'])}" if value is not None else entry["peer"]


def place_words(entry):
    """Where and how a figure was measured."""
    if entry["value"] is None:
        return ""
    parts = [entry.get("date"), entry.get("machine"), entry.get("revision") and f"revision {entry['revision']}", entry.get("source")]
    return "; ".join(part for part in parts if part)


def table(entries):
    """A table for each benchmark, in Markdown."""
    text = ""
    for benchmark in dict.fromkeys(entry["benchmark"] for entry in entries):
        mine = [entry for entry in entries if entry["benchmark"] == benchmark]
        # A run may have had other benchmarks, too: this is what prints these figures.
        text += f"## {benchmark}\n\n`tools/bench NUMAPILOT BUILD {benchmark}`\n\n| figure | measured | goal | peer | where |\n| --- | --- | --- | --- | --- |\n"
        for entry in mine:
            value = shown(entry["value"], entry["unit"]) if entry["value"] is not None else NOT_MEASURED
            words = [entry["name"], value, entry.get("goal", ""), peer_words(entry), place_words(entry)]
            text += "| " + " | ".join(map(cell, words)) + " |\n"
        text += "\n"
    return text


def with_table(page, entries):
    """The page's text with the table of these entries between its two marks."""
    pattern = re.compile(f"{re.escape(BEGIN)}.*{re.escape(END)}", re.DOTALL)
    if not pattern.search(page):
        raise ValueError(f"no lines {BEGIN} and {END}")
    return pattern.sub(lambda _: f"{BEGIN}\n\n{table(entries)}{END}", page)


def renew(figures, about, page=PAGE, kept=KEPT):
    """Puts a run's figures on the page and into the kept file."""
    entries = merged(load(kept), figures, about)
    with open(page, encoding="utf-8") as file:
        text = with_table(file.read(), entries)
    files.write(kept, as_json(entries))
    files.write(page, text)


def figures_of(path):
    """The figures of a file that `--json` wrote, and what it says about the run."""
    with open(path, encoding="utf-8") as file:
        data = json.load(file)
    return [Figure(**figure) for figure in data["figures"]], {field: data.get(field, "") for field in ABOUT}
