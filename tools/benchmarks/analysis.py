"""What comes after recording: joining, symbols, tables, imports, queries; the traffic model and the simulator."""

import glob
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import time

from benchmarks.base import ROOT, Bench, heading, run, spread
from benchmarks.programs import FAULTS


class Analysis(Bench):
    def offline(self):
        """From raw chunks to tables, with symbols."""
        heading("offline processing: decode, merge, join, symbols, tables (5 million accesses)")
        output = self.example("numapilot-flows", "offline_rate")
        print(output, end="")
        self.read(output, r"finalise: .*: ([0-9.]+) million/s", "chunks to a trace", "million accesses/s", goal="5")
        self.read(output, r"finalise: ([0-9.]+) ns of CPU time per access", "CPU time of an access", "ns")
        self.read(output, r"at rest: ([0-9.]+) bytes per access", "an access at rest", "bytes")
        self.read(output, r"open: ([0-9.]+) million/s", "opening a trace", "million accesses/s")
        self.read(output, r"iterate: ([0-9.]+) million/s", "walking a trace", "million accesses/s")
        print("goal: 5 million accesses per second")

    def dictionary(self):
        """Columns with few distinct values: the encoder of tables against that of the parquet crate."""
        heading("dictionary: columns of accesses with few distinct values, CPU time of one core against the parquet crate's encoder")
        output = self.example("numapilot-trace", "dictionary_rate")
        print(output, end="")
        found = re.search(r"^all of a row +([0-9.]+) +([0-9.]+)", output, re.M)
        if found:
            goal = {"goal": "less than half of the peer's", "peer": "parquet crate", "peer_value": float(found[2])}
            self.figure("dictionary columns of a row", float(found[1]), "ns", **goal)
        print("goal: less than half of the parquet crate's time; otherwise its encoder would do")

    def traffic(self):
        """Solves of the traffic model: classes of threads on simulated machines, one thread per core."""
        heading("traffic model: microseconds per solve, with all marginal costs (one core; medians of 200)")
        output = self.example("numapilot-traffic", "solves")
        print(f"{'machine':14} {'nodes':>5} {'stations':>8} {'classes':>7} {'cold us':>8} {'warm us':>8} {'warm/s':>8} {'iterations':>10} "
              f"{'ns per iteration, class and station':>36}")
        for case in map(json.loads, output.splitlines()):
            each = case["cold_us"] * 1000 / (case["cold_iterations"] * case["classes"] * case["stations"])
            goal = "well under 1,000 us" if (case["nodes"], case["classes"]) == (8, 48) else ""
            self.figure(f"{case['machine']}, {case['classes']} classes, cold", case["cold_us"], "us", goal=goal)
            self.figure(f"{case['machine']}, {case['classes']} classes, warm", case["warm_us"], "us")
            print(f"{case['machine']:14} {case['nodes']:>5} {case['stations']:>8} {case['classes']:>7} {case['cold_us']:>8.1f} "
                  f"{case['warm_us']:>8.1f} {1e6 / case['warm_us']:>8.0f} {case['cold_iterations']:>10.1f} {each:>36.1f}")
        print("goals: 8 nodes with 48 classes well under 1,000 us; the last column does not grow (linear in classes x stations)")
        self.prices()

    def prices(self):
        """CPU time of one priced change: a fix beside the same without any, both by all members of the ensemble, opening the trace included."""
        heading("prices: user CPU time of `whatif`, with its ensemble, trace opened and read (medians of 7)")
        print(f"{'recording':16} {'members':>8} {'user s':>8}")
        for trace in sorted(glob.glob(os.path.join(ROOT, "testdata/traces/*.numatrace"))):
            times = []
            for _ in range(self.rounds(7)):
                before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                done = subprocess.run([self.numapilot, "whatif", trace, "--set", "*=interleave", "--json"], capture_output=True, text=True, check=False)
                times.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
            if done.returncode == 0:
                members = json.loads(done.stdout)["uncertainty"]["members"]
                name = f"whatif of {os.path.basename(trace)[:-10]}, user CPU time"
                self.figure(name, statistics.median(times), "s", goal="0.5 s for the case studies with 200 members")
                print(f"{os.path.basename(trace)[:-10]:16} {members:>8} {statistics.median(times):>8.2f}")
        print("goal: 0.5 s for the case studies with 200 members")

    def simulate(self):
        """Simulated time per host time, and its growth with threads, nodes and pages."""
        heading("simulator: a minute of a program under a policy (one core)")
        output = self.example("numapilot-simulator", "speed")
        print(output, end="")
        for policy, program, seconds in re.findall(r"^(\S+) +(.*?): \d+ s in ([0-9.]+) s,", output, re.M):
            goal = "10" if "48 threads" in program else ""
            self.figure(f"a minute under {policy}, {' '.join(program.split())}", float(seconds), "s", goal=goal)
        print("goal: a minute of 48 threads over millions of pages in under 10 s")

    def imports(self):
        """Decoding of samples, and importing a recording of perf against printing it with perf."""
        heading("import: decoding one sample (one core, in memory)")
        output = self.example("numapilot-perf", "decode_rate", "--features", "testing")
        print(output, end="")
        for kind, ns in re.findall(r"^(.*): ([0-9.]+) ns per sample", output, re.M):
            self.figure(f"decoding a sample of {kind}", float(ns), "ns")
        heading("import: a recording of page faults to a finished trace (joined, symbols resolved, compressed tables), against `perf script` printing it")
        source = os.path.join(self.scratch, "faults.c")
        with open(source, "w") as file:
            file.write(FAULTS)
        program, data = os.path.join(self.scratch, "faults"), os.path.join(self.scratch, "faults.data")
        run(["gcc", "-O1", "-g", "-fno-omit-frame-pointer", source, "-o", program])
        record = ["perf", "record", "-q", "-m", "16M", "-e", "page-faults", "-c", "1", "-d", "-g", "--sample-cpu", "-o", data, "--", program]
        if not shutil.which("perf") or subprocess.run(record, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            print("NOT RUN: perf is not installed, or cannot record here")
            return
        trace = os.path.join(self.scratch, "i.numatrace")
        fields = "pid,tid,cpu,time,period,event,addr,ip"
        commands = {
            "numapilot import": [self.numapilot, "import", "--quiet", "--force", "-o", trace, data],
        }
        if not self.is_side:
            commands["perf script"] = ["perf", "script", "-i", data]
            commands["perf script, no symbols"] = ["perf", "script", "-i", data, "-F", fields]
        times = {name: [] for name in commands}
        for _ in range(self.rounds(5)):
            for name, command in commands.items():
                start = time.monotonic()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                times[name].append(time.monotonic() - start)
        samples = json.load(open(os.path.join(trace, "meta.json")))["import"]["samples"]
        print(f"{samples} samples with call chains, {os.path.getsize(data) / 1e6:.1f} MB")
        mine = statistics.median(times["numapilot import"])
        peer = {} if self.is_side else {"peer": "perf script", "peer_value": statistics.median(times["perf script"])}
        self.figure("page faults with call chains to a trace", mine, "s", goal="a twentieth of perf script's", **peer)
        for name, values in times.items():
            print(f"{name:24} {spread(values):>24} s {samples / statistics.median(values) / 1e3:>8.0f} k samples/s "
                  f"{statistics.median(values) / mine:>6.1f} x")
        print("goal: perf script takes 20 times as long")

    def big_trace(self):
        """Ten million accesses to 100,000 objects by 64 threads, made once."""
        trace = os.path.join(self.scratch, "big.numatrace")
        if not os.path.exists(trace):
            self.cargo("run", "--quiet", "--release", "--locked", "-p", "numapilot-fixtures", "--bin", "make-trace", "--", "big", trace)
        return trace

    def flows(self):
        """Accesses per second through numapilot_foreach."""
        heading("flows: accesses walked from C by numapilot_foreach, of 10 million by 64 threads to 100,000 objects (one core; medians of 5)")
        capi, built = os.path.join(self.root, "crates/capi"), os.path.join(self.scratch, "capi")
        run(["make", "--no-print-directory", "-C", capi, f"OUT={built}"], env=self.environment())
        program = os.path.join(self.scratch, "flows")
        source = os.path.join(capi, "benches-c/flows.c")
        run(["gcc", "-O2", "-I", os.path.join(capi, "include"), source, "-o", program, "-L", built, "-lnumapilot", f"-Wl,-rpath,{built}"])
        rounds = [json.loads(line) for line in run([program, self.big_trace(), "5"]).splitlines()]
        print(f"{'flows':8} {'count':>8} {'accesses':>10} {'seconds':>26} {'million/s':>10}")
        for kind in ["all", "thread", "object"]:
            mine = [one for one in rounds if one["flows"] == kind]
            seconds = [one["seconds"] for one in mine]
            rate = mine[0]["accesses"] / statistics.median(seconds) / 1e6
            self.figure(f"numapilot_foreach, {kind}", rate, "million accesses/s", goal="50")
            print(f"{kind:8} {mine[0]['count']:>8} {mine[0]['accesses']:>10} {spread(seconds):>26} {rate:>10.0f}")
        print("goal: 50 million accesses per second or more")

    def query_tool(self):
        tool = os.path.join(self.target, "release/numapilot-query")
        if os.path.exists(tool):
            return tool
        print(f"NOT RUN: {tool} is not built: make query")
        return None

    @staticmethod
    def peers():
        """A Python with the engines to compare with."""
        return run([os.path.join(ROOT, "tools/python"), os.path.join(ROOT, "tools/bench-requirements.txt")]).strip()

    def query(self):
        """Group-bys on ten million accesses."""
        heading("query: three group-bys on 10 million accesses, from the Parquet file to the answer (seconds; medians of 3, ways in turn)")
        tool = self.query_tool()
        if tool:
            words = [os.path.join(ROOT, "tools/group-bys"), self.big_trace(), tool]
            output = run(["python3", "-B", *words, "1", "--alone"] if self.is_side else [self.peers(), "-B", *words])
            print(output, end="")
            found = {line[:26].strip(): re.findall(r"([0-9.]+) \(", line) for line in output.splitlines()[1:]}
            for at, question in enumerate(["matrix", "objects", "pages"]):
                values = {way: float(times[at]) for way, times in found.items() if len(times) == 3}
                peer = {"peer": "DuckDB", "peer_value": values["DuckDB"]} if "DuckDB" in values else {}
                self.figure(f"group by {question}", values.get("numapilot query"), "s", **peer)

    def fleet(self):
        """One question to more and more hosts."""
        heading("fleet: two questions to traces of 10, 100 and 1,000 hosts (2,000 accesses each), by four engines; answers are compared byte for byte")
        tool = self.query_tool()
        if tool:
            self.cargo("build", "--quiet", "--release", "--locked", "-p", "numapilot-fixtures")
            make_trace = os.path.join(self.target, "release/make-trace")
            words = ["-B", os.path.join(ROOT, "tools/fleet-check"), tool, "--make-trace", make_trace]
            output = run(["python3", *words, "--engines", ""] if self.is_side else [self.peers(), *words])
            print(output, end="")
            for hosts, engine, seconds, mib in re.findall(r"^ *(\d+) (\w+) +([0-9.]+) +([0-9]+)", output, re.M):
                if engine == "ours":
                    self.figure(f"two questions to {hosts} hosts", float(seconds), "s", goal="linear in hosts")
                    self.figure(f"memory for {hosts} hosts", float(mib), "MiB", goal="linear in hosts, or less")
