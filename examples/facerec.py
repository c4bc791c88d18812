"""FaceRec (face recognition): one matrix out of hundreds, written once and read by everybody, receives nearly all remote accesses. Copy it to each node."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import numapilot
from numapilot.scripts.read_only import bound_ppm

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("recording", type=Path)
arguments.add_argument("--pictures", type=Path, help="folder for pictures")
given = arguments.parse_args()

# %% How much is remote, and which object receives it?
trace = numapilot.open(given.recording)
print(trace.report(top=3))
row = trace.report(top=1)["sites"][0]
site = trace.sites[row["key"]["site"]]
print(f"{site.name} receives {row['share_of_remote']['value']:.1%} of the remote accesses; there are {len(trace.objects)} objects")

# %% Who writes it, who reads it, when? Its flow tells, access by access.
writes: Counter[int] = Counter()
last_write_ns = 0
for access in site.flow():
    if access.is_write:
        writes[access.thread] += access.weight
        last_write_ns = access.time_ns
print(f"written by thread {', '.join(map(str, writes)) or 'none'}, for the last time after {last_write_ns / 1e6:.0f} ms")

after = trace.statistics(site=site.number, time=(last_write_ns + 1, None))
readers = {access.thread for access in trace.flow(site=site.number, time=(last_write_ns + 1, None))}
print(f"then read by {len(readers)} threads: {after.samples} samples and not one write, so that less than", end=" ")
print(f"{bound_ppm(after.samples) / 1e4:.3f} % of the accesses can be writes (95 %); {after.remote.value:.1%} of them are remote")

# %% So copies would not have to be kept equal. What would they gain, beside interleaving?
for home in ("replicate", "interleave"):
    found = trace.whatif({site.name: home})
    print(f"{home} {site.name}: {found['gain']:+.0%} ({found['gain_low']:+.0%} to {found['gain_high']:+.0%}), predicted", end="; ")
    print(f"local accesses {found['now']['total']['metrics']['local_access_ratio']:.0%}", end=" to ")
    print(f"{found['then']['total']['metrics']['local_access_ratio']:.0%}, {found['more_bytes'] >> 20} MiB more memory")

# %% The machine with its links, and the matrix page by page.
if given.pictures is not None:
    given.pictures.mkdir(parents=True, exist_ok=True)
    trace.picture("traffic").save(given.pictures / "facerec-traffic.svg")
    trace.picture("pages", object=f"S{site.number}").save(given.pictures / "facerec-pages.svg")
