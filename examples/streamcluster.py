"""Streamcluster (online k-median): one array, on one node because one thread read it in, is reached by all threads, and saturates that node. Interleave it."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numapilot
from numapilot.scripts import first_touch

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("recording", type=Path)
arguments.add_argument("--pictures", type=Path, help="folder for pictures")
given = arguments.parse_args()

# %% Where do accesses go?
trace = numapilot.open(given.recording)
report = trace.report(top=2)
totals = report["headline"]["totals"]
served = [node["value"] for node in totals["served"]]
busiest = served.index(max(served))
print(f"{totals['remote_share']['value']:.1%} of the accesses are remote; node {busiest} serves {max(served) / sum(served):.1%} of them all")
for row in report["sites"]:
    print(f"  {row['name']} ({row['place']}) receives {row['share']['value']:.1%}, {row['remote']['value']:.1%} of its own remote")
block = trace.sites[report["sites"][0]["key"]["site"]]

# %% Why is it there? The first touch put it there, and others came later.
for touch in map(lambda cells: dict(zip(first_touch.COLUMNS, cells)), first_touch.rows(trace)):
    if touch["site"] == block.number:
        later = int(touch["later_ppm"] or 0) / 1e4
        print(f"{block.name}: {touch['instances']} instance(s); {later:.1f} % of its accesses are by others than who came first")
first = next(block.flow())
print(f"thread {first.thread} on node {first.node} came first, after {first.time_ns / 1e6:.1f} ms")

# %% Do the threads part it among them, or does everybody reach everything? Accesses by node, over quarters of the array.
(array,) = [object for object in trace.objects if object.site == block.number and len(object) > 0][:1]
quarters: list[Counter[int]] = [Counter() for _ in range(4)]
for access in array.flow():
    if access.node is not None:
        quarters[4 * (access.address - array.address) // array.bytes][access.node] += access.weight
for number, quarter in enumerate(quarters):
    whole = sum(quarter.values()) or 1
    print(f"  quarter {number}: " + ", ".join(f"node {node} {quarter[node] / whole:.0%}" for node in trace.nodes))

# %% What would help: spreading that array alone, or everything?
for name in (block.name, "*"):
    found = trace.whatif({name: "interleave"})
    now, then = (found[when]["total"] for when in ("now", "then"))
    what, gain = "everything" if name == "*" else name, f"{found['gain']:+.0%} ({found['gain_low']:+.0%} to {found['gain_high']:+.0%})"
    print(f"interleave {what}: {gain}, predicted; a memory access takes", end=" ")
    print(f"{then['metrics']['memory_latency_ns']:.0f} instead of {now['metrics']['memory_latency_ns']:.0f} ns")

# %% Pictures.
if given.pictures is not None:
    given.pictures.mkdir(parents=True, exist_ok=True)
    trace.picture("imbalance").save(given.pictures / "streamcluster-imbalance.svg")
    trace.picture("timeline", object=f"S{block.number}").save(given.pictures / "streamcluster-block.svg")
