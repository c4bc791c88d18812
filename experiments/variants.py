"""Machines that a model file could also describe: its text with values drawn from the ranges that it gives. Pure.

As in predictions (crates/traffic/src/ensemble.rs): each figure evenly in its range, ratios to the local latency as such, one draw in each equal part of a range
(Latin hypercube). What the model file leaves to the traffic model's defaults has their ranges.
"""

import random
import re

FIGURE = re.compile(r"^(?P<key>\w+) = \{ value = (?P<value>[^,}]+)(?P<rest>,.*\brange = \[(?P<low>[^,\]]+), (?P<high>[^,\]]+)\].*)$")
LATENCY = re.compile(r"^ns = \{ value = (?P<value>[^,}]+)(?P<rest>[,}].*)$")
RATIO = re.compile(r"^over_local = \[(?P<low>[^,\]]+), (?P<high>[^,\]]+)\]$")
# Ranges of the traffic model's defaults (docs/patterns.md, "Interval").
DEFAULTS = {"controller_efficiency": (0.6, 0.9), "write_turnaround": (0.0, 0.4)}


def hypercube(ranges, count, seed):
    """`count` points; of each range, one value in each `count`-th part of it."""
    chance = random.Random(seed)
    columns = []
    for low, high in ranges:
        parts = list(range(count))
        chance.shuffle(parts)
        columns.append([low + (part + chance.random()) / count * (high - low) for part in parts])
    return list(zip(*columns))


def ranges_of(lines):
    """What is drawn: (line number, kind, range), in the order of the lines. Kind: `figure`; `ratio`, whose line bounds the latency before it as a multiple of
    the local one; a key of DEFAULTS, which is added after that line."""
    found, given = [], {line.split(" = ")[0] for line in lines}
    for at, line in enumerate(lines):
        if match := FIGURE.match(line):
            found.append((at, "figure", (float(match["low"]), float(match["high"]))))
        elif match := RATIO.match(line):
            found.append((at, "ratio", (float(match["low"]), float(match["high"]))))
        elif line == "[traffic]":
            found += [(at, key, bounds) for key, bounds in DEFAULTS.items() if key not in given]
    return found


def local_ns(lines):
    """The latency of a node to itself."""
    at = next((at for at, line in enumerate(lines) if line == "hops = 0"), None)
    match = None if at is None else LATENCY.match(lines[at + 1])
    if match is None:
        raise ValueError("the model has no latency of zero hops on one line after `hops = 0`")
    return float(match["value"])


def variant(text, drawn, values):
    """The text with these values; `drawn`: as of ranges_of."""
    lines = text.split("\n")
    for (at, kind, _), value in zip(drawn, values):
        if kind == "figure":
            match = FIGURE.match(lines[at])
            lines[at] = f"{match['key']} = {{ value = {value:.6g}{match['rest']}"
    local = local_ns(lines)
    for (at, kind, _), value in zip(drawn, values):
        if kind == "ratio":
            match = LATENCY.match(lines[at - 1])
            lines[at - 1] = f"ns = {{ value = {local * value:.6g}{match['rest']}"
        elif kind in DEFAULTS:
            lines[at] += f'\n{kind} = {{ value = {value:.6g}, source = "drawn from the range of the default", estimate = true }}'
    return "\n".join(lines)


def variants(text, count, seed=1):
    """`count` models that `text` could also describe."""
    drawn = ranges_of(text.split("\n"))
    return [variant(text, drawn, values) for values in hypercube([bounds for _, _, bounds in drawn], count, seed)]
