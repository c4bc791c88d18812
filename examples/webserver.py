"""Apache/PHP: memory pools are shared by the threads of each process, and these are spread over all nodes. Pin each process to one node."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from pathlib import Path

import numapilot

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("recording", type=Path)
arguments.add_argument("--pictures", type=Path, help="folder for pictures")
given = arguments.parse_args()

# %% What is remote, and of what?
trace = numapilot.open(given.recording)
report = trace.report(top=1)
row = report["sites"][0]
pool = trace.sites[row["key"]["site"]]
print(f"{report['headline']['totals']['remote_share']['value']:.1%} of the accesses are remote")
print(f"{pool.name} ({row['place']}) receives {row['share']['value']:.1%} of all in {row['instances']} instances, {row['remote']['value']:.1%} remote")

# %% Who shares a pool: threads of one process, or of several?
processes = [thread.process for thread in trace.threads]
sharing: Counter[str] = Counter()
for object in trace.objects:
    if object.site != pool.number or len(object) < 2:
        continue
    threads = {access.thread for access in object.flow()}
    of = {processes[thread] for thread in threads}
    sharing["one thread" if len(threads) == 1 else "threads of one process" if len(of) == 1 else "several processes"] += 1
print("pools reached by " + ", ".join(f"{who}: {count}" for who, count in sharing.most_common()))

# %% And on which nodes are a process's threads?
nodes: defaultdict[int, Counter[int]] = defaultdict(Counter)
for access in trace.flow(remote=True):
    if access.node is not None:
        nodes[processes[access.thread]][access.node] += access.weight
for process, by_node in sorted(nodes.items()):
    row_of = trace.processes[process]
    if len(by_node) > 1:
        print(f"  process {row_of.number} (pid {row_of.pid}): remote accesses from nodes {', '.join(map(str, sorted(by_node)))}")

# %% So what is found, and what would it gain to keep each process on one node?
findings = trace.findings()
for finding in findings["findings"]:
    if finding["pattern"] == "process-wide-sharing":
        for fix in finding["fixes"]:
            gain = fix["gain"]
            print(f"{finding['about']}: {fix['says']}: {gain['value']:+.1%} ({gain['low']:.1%} to {gain['high']:.1%}), predicted")

# %% Pictures.
if given.pictures is not None:
    given.pictures.mkdir(parents=True, exist_ok=True)
    trace.picture("matrix").save(given.pictures / "webserver-matrix.svg")
    trace.picture("traffic").save(given.pictures / "webserver-traffic.svg")
