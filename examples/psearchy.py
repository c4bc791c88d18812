"""Psearchy (file indexer): remote accesses to objects that nobody but their allocating threads use: memory came from another node's pages. Allocate locally."""

from __future__ import annotations

import argparse
from pathlib import Path

import numapilot
from numapilot.scripts import allocator_only, false_sharing

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("recording", type=Path)
arguments.add_argument("--pictures", type=Path, help="folder for pictures")
given = arguments.parse_args()

# %% How much is remote?
trace = numapilot.open(given.recording)
everything = trace.statistics()
print(f"{everything.remote.value:.1%} [{everything.remote.low:.1%}, {everything.remote.high:.1%}] of the accesses are remote")

# %% Which objects are their allocator's alone?
remote_and_alone = 0
for cells in allocator_only.rows(trace):
    row = dict(zip(allocator_only.COLUMNS, cells))
    accesses, alone, alone_remote = (int(row[name] or 0) for name in ("accesses", "alone_accesses", "alone_remote_accesses"))
    remote_and_alone += alone_remote
    if accesses > 0.05 * everything.accesses.value:
        print(f"  {row['name']}: {accesses / everything.accesses.value:.0%} of all; {alone / accesses:.1%} of that on objects", end=" ")
        print(f"that only its allocator reaches, {alone_remote / max(1, alone):.1%} of it remote")
share = remote_and_alone / (everything.remote.value * everything.accesses.value)
print(f"{share:.0%} of all remote accesses are an allocating thread's own, to its own objects")

# %% Whose pages did it get? Pages on which objects of several threads meet say how memory was handed on.
pages = list(false_sharing.rows(trace))
print(f"{len(pages)} pages hold objects of several threads on several nodes, one after the other or at once")

# %% Local allocation: each page where its user is. And interleaving, which many try first.
for home in ("local", "interleave"):
    found = trace.whatif({"*": home})
    then = found["then"]["total"]["metrics"]["local_access_ratio"]
    print(f"{home}: {found['gain']:+.1%} ({found['gain_low']:+.1%} to {found['gain_high']:+.1%}), predicted; local accesses {then:.0%}")

# %% Pictures.
if given.pictures is not None:
    given.pictures.mkdir(parents=True, exist_ok=True)
    trace.picture("matrix").save(given.pictures / "psearchy-matrix.svg")
    trace.picture("objects").save(given.pictures / "psearchy-objects.svg")
