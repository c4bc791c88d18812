"""What recording costs the recorded program and the disk: engines, plans, samples on their way to the trace's files."""

import json
import math
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import time

from benchmarks.base import MACHINE, ROOT, Bench, end_group, heading, paired, run, spread
from benchmarks.programs import FAULTS

SLOWDOWN_GOAL = "at most 3, none above 6"
# Published figures that the goals come from: MemProf (USENIX ATC'12), in cycles and bytes.
MEMPROF_EVENT_CYCLES = 400
MEMPROF_EVENT_BYTES = 590
MEMPROF_SAMPLE_BYTES = 200
MEMPROF_SAMPLE_CYCLES = {"kept": 2000, "discarded": 200}
# A program that takes longer under an emulator is ended.
EMULATE_LIMIT_S = 60
# Programs whose slow-down is measured.
SLOWED = ["streamcluster", "facerec", "psearchy", "pipeline", "cg", "cgf"]
# Integer and pointer work first, floating point last.
EMULATED = [("is",), ("bfs",), ("psearchy",), ("pipeline",), ("streamcluster", "--size", "test"), ("facerec", "--size", "test")]


class Recording(Bench):
    def tracker(self):
        """Time that recording adds to each malloc+free pair, under a ten-deep stack."""
        heading("tracker: time added to each malloc+free pair, with call stacks (one thread, ten frames)")
        program = self.compile_lifecycle()
        pairs = "400000"
        trace = os.path.join(self.scratch, "t.numatrace")
        record = [self.numapilot, "record", "--quiet", "--force", "--engine", "track", "-o"]
        commands = {
            "alone": [program, pairs],
            "numapilot": [*record, trace, "--", program, pairs],
            "by sequence": ["env", "NUMAPILOT_ORDER=sequence", *record, os.path.join(self.scratch, "q.numatrace"), "--", program, pairs],
        }
        if self.has_peer("heaptrack"):
            commands["heaptrack"] = ["heaptrack", "-o", os.path.join(self.scratch, "h"), program, pairs]
        elif not self.is_side:
            print("heaptrack is not installed: no peer to compare with")
        costs = {name: [] for name in commands}
        for _ in range(self.rounds(5)):
            for name, command in commands.items():
                costs[name].append(self.ns_per_pair(run(command, cwd=self.scratch)))
        # Stamps that are a sequence have no frequency, and then no time is given in cycles.
        ghz = json.load(open(os.path.join(trace, "meta.json")))["clock"]["order_khz"] / 1e6

        def cycles(ns):
            return f"{ns / 2 * ghz:.0f}" if ghz else "unknown"

        base = statistics.median(costs["alone"])
        print(f"{'median of 5':12} {'ns per pair (thread CPU time)':>34} {'added ns':>10} {'cycles per event':>17}")
        for name, values in costs.items():
            added = statistics.median(values) - base
            print(f"{name:12} {spread(values):>34} {added:>10.1f} {cycles(added):>17}")
        mine, peer = statistics.median(costs["numapilot"]) - base, {}
        if "heaptrack" in costs:
            theirs = statistics.median(costs["heaptrack"]) - base
            print(f"added by numapilot / by heaptrack: {mine / theirs:.3f} (goal: at most 0.2)")
            peer = {"peer": "heaptrack", "peer_value": theirs}
        self.figure("added to a malloc and its free", mine, "ns", goal="at most 0.2 of heaptrack's", **peer)
        if not ghz:
            print("stamps by the processor's counter: this machine's are a sequence in memory, so neither cycles nor their price are known")
            return
        print(f"cycles per lifecycle event, at {ghz:.2f} GHz: {cycles(mine)} (MemProf: {MEMPROF_EVENT_CYCLES})")
        sequence = statistics.median(costs["by sequence"]) - base
        self.figure("added with stamps by a sequence", sequence, "ns")
        print(f"added with stamps by a sequence in memory, which need a clock beside them / by the counter: {sequence / mine:.2f}")
        self.stamps(mine)

    def stamps(self, added):
        """What of the `added` nanoseconds per pair, recorded with stamps by the counter, is the price of their order: two stamps per pair."""
        program = os.path.join(self.scratch, "stamps")
        source = os.path.join(self.root, "crates/runtime")
        run(["gcc", "-O2", "-I", os.path.join(source, "c"), os.path.join(source, "benches-c/stamps.c"), "-o", program])
        words = run([program]).split()
        ns = dict(zip(words[::2], map(float, words[1::2])))
        print("order stamps, ns each, medians of 7 runs in turn: " + ", ".join(f"{name} {cost:.1f}" for name, cost in ns.items()) + " (bare is not ordered)")
        unordered = added - 2 * (ns["counter"] - ns["bare"])
        if unordered <= 0:
            print("stamps by themselves cost more than all that recording added: no ratio")
            return
        for name in ["counter", "counter_p"]:
            ratio = (unordered + 2 * (ns[name] - ns["bare"])) / unordered
            print(f"added per pair with stamps by {name} / by unordered reads, at least: {ratio:.2f}")

    @staticmethod
    def ns_per_pair(output):
        found = re.search(r"ns_cpu_per_pair ([0-9.]+)", output)
        if not found:
            sys.exit(f"bench: no figure in the output of lifecycle:\n{output}")
        return float(found.group(1))

    def bytes(self):
        """Size of a trace at rest."""
        heading("bytes at rest")
        trace, _ = self.record("b.numatrace", ["--engine", "track"], [self.compile_lifecycle(), "1000000"])
        tables = json.load(open(os.path.join(trace, "meta.json")))["tables"]
        events = 2 * tables["objects"]["rows"]
        size = sum(table["bytes"] for name, table in tables.items() if name != "accesses")
        self.figure("a lifecycle event of a loop", size / events, "bytes", goal="24", peer="MemProf", peer_value=MEMPROF_EVENT_BYTES)
        print(f"lifecycle events of a loop: {size / events:.1f} bytes each ({events} events; all tables but accesses; "
              f"goal 24, MemProf {MEMPROF_EVENT_BYTES})")
        source = os.path.join(ROOT, "workloads/streamcluster/streamcluster.cpp")
        compiler = ["g++", "-std=c++20", "-O1", "-c", "-I", os.path.join(ROOT, "workloads/common"), source, "-o", "/dev/null"]
        trace, _ = self.record("g.numatrace", ["--engine", "track"], compiler)
        tables = json.load(open(os.path.join(trace, "meta.json")))["tables"]
        events = 2 * tables["objects"]["rows"]
        size = sum(table["bytes"] for name, table in tables.items() if name != "accesses")
        self.figure("a lifecycle event of a compiler", size / events, "bytes")
        print(f"lifecycle events of a compiler: {size / events:.1f} bytes each ({events} events, every object counted with its end)")
        program = os.path.join(self.build, "instrumented", "streamcluster")
        options = ["--machine", MACHINE, "--period", "64"]
        trace, _ = self.record("s.numatrace", options, [program, "--threads", "16", "--chunks", "1", "--chunk", "65536"])
        table = json.load(open(os.path.join(trace, "meta.json")))["tables"]["accesses"]
        each = table["bytes"] / table["rows"]
        self.figure("a sample", each, "bytes", goal="16", peer="MemProf", peer_value=MEMPROF_SAMPLE_BYTES)
        print(f"samples: {table['bytes'] / table['rows']:.1f} bytes each ({table['rows']} samples of streamcluster; "
              f"goal 16, MemProf {MEMPROF_SAMPLE_BYTES})")

    def slowdown(self):
        """Wall time of recorded programs over the same programs as any compiler builds them. Without a recorder the call-outs only find that there is none:
        what they take then is the calls, and the loops that the compiler no longer turns into vectors. Then the same with call-outs after optimisation."""
        heading(f"slow-down of recorded programs over native, 16 threads on {MACHINE}, default sizes")
        folders = {"": os.path.join(self.build, "instrumented")}
        after = self.after_optimisation([name for name in SLOWED if os.path.exists(os.path.join(self.build, "native", name))])
        if after:
            folders[" after optimisation"] = after
        ways = [f"{way}{name}" for name in folders for way in ("call-outs alone", "recorded")]
        print(f"{'program':16} {'native s':>24} " + " ".join(f"{way:>34} {'ratio':>6}" for way in ways))
        ratios = {way: [] for way in ways}
        for program in SLOWED:
            native = [os.path.join(self.build, "native", program), "--threads", "16"]
            if not all(os.path.exists(os.path.join(folder, program)) for folder in [os.path.dirname(native[0]), *folders.values()]):
                print(f"{program:16} not built")
                continue
            times = self.slowed(native, {name: [os.path.join(folder, program), *native[1:]] for name, folder in folders.items()})
            base = statistics.median(times["native"])
            for way, values in ratios.items():
                values.append(statistics.median(times[way]) / base)
                self.figure(f"{program}, {way} over native", values[-1], "x")
            cells = (f"{spread(times[way]):>34} {ratios[way][-1]:>6.2f}" for way in ways)
            print(f"{program:16} {spread(times['native']):>24} {' '.join(cells)}", flush=True)
        for way, values in ratios.items():
            if values:
                mean = math.exp(statistics.mean(math.log(value) for value in values))
                self.figure(f"geometric mean, {way} over native", mean, "x", **({"goal": SLOWDOWN_GOAL} if way.startswith("recorded") else {}))
                print(f"geometric mean, {way}: {mean:.2f}, at most {max(values):.2f}")
        print(f"goal: recorded {SLOWDOWN_GOAL}; offline processing included")

    def after_optimisation(self, programs):
        """The folder of these programs with call-outs after optimisation; None from a revision whose compiler wrapper has no such option."""
        folder = os.path.join(self.scratch, "after")
        makes = {name: f"{self.numapilot} {word} --after-optimisation" for name, word in [("CC", "cc"), ("CXX", "c++"), ("FC", "fc")]}
        words = [f"OUT={folder}", *(f"{name}={value}" for name, value in makes.items()), *(os.path.join(folder, name) for name in programs)]
        command = ["make", "--no-print-directory", "-C", os.path.join(ROOT, "workloads"), *words]
        # Links have no option that says it.
        environment = {**os.environ, "NUMAPILOT_AFTER_OPTIMISATION": "1"}
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        if done.returncode != 0:
            print(f"NOT RUN after optimisation: the programs could not be built:\n{done.stdout[-1000:]}")
            return None
        return folder

    def slowed(self, native, instrumented):
        """Seconds of the native program, and of instrumented ones, alone and recorded, in turn."""
        times = {"native": []}
        for _ in range(self.rounds(3)):
            for way, command in {"native": native, **{f"call-outs alone{name}": command for name, command in instrumented.items()}}.items():
                start = time.monotonic()
                run(command, cwd=self.scratch, env={**os.environ, "OMP_WAIT_POLICY": "passive"})
                times.setdefault(way, []).append(time.monotonic() - start)
            for name, command in instrumented.items():
                times.setdefault(f"recorded{name}", []).append(self.record("p.numatrace", ["--machine", MACHINE], command)[1])
        return times

    def window(self):
        """Processor time of sixteen threads whose clocks are kept within the default window over the same with one of a second, which holds nobody up."""
        heading("window: processor time of a program of 16 threads with the default window over one of a second")
        program = os.path.join(self.scratch, "window")
        source = os.path.join(ROOT, "crates/runtime/benches-c/window.c")
        run([self.numapilot, "cc", "-O2", "-g", "-pthread", source, "-o", program])
        seconds = {"100": [], "1000000": []}
        for _ in range(self.rounds(7)):
            for window, values in seconds.items():
                trace = os.path.join(self.scratch, "w.numatrace")
                words = ["record", "--quiet", "--force", "--machine", MACHINE, "--window", window, "-o", trace, "--", program]
                values.append(int(run([self.numapilot, *words], cwd=self.scratch).split()[-1]) / 1e6)
        kept, free = seconds.values()
        ratio = statistics.median(one / other for one, other in zip(kept, free))
        self.figure("CPU time with the default window over one of a second", ratio, "x", goal="at most 1.4")
        print(f"{spread(kept)} s with it, {spread(free)} s without, ratio in pairs {paired(kept, free)} (goal: at most 1.4)")

    def emulate(self):
        """Both simulating engines, and the emulator without us, over native: wall time."""
        heading(f"slow-down of `emulate` and `instrument` over native, 8 threads on {MACHINE}")
        qemu = os.environ.get("NUMAPILOT_QEMU") or shutil.which("qemu-x86_64")
        if not qemu:
            print("NOT RUN: there is no qemu-x86_64 here (docs/emulate.md says which is needed)")
            return
        trace = os.path.join(self.scratch, "e.numatrace")
        record = [self.numapilot, "record", "--quiet", "--force", "--machine", MACHINE, "-o", trace]
        print(f"{'program':30} {'native s':>24} {'QEMU alone':>18} {'emulate':>18} {'instrument':>18}")
        ratios = {"qemu": [], "emulate": [], "instrument": []}
        for program, *arguments in EMULATED:
            native = [os.path.join(self.build, "native", program), "--threads", "8", *arguments]
            instrumented = [os.path.join(self.build, "instrumented", program), *native[1:]]
            if not os.path.exists(native[0]) or not os.path.exists(instrumented[0]):
                print(f"{program:30} not built")
                continue
            commands = {
                "native": native,
                **({} if self.is_side else {"qemu": [qemu, *native]}),
                "emulate": [*record, "--engine", "emulate", "--", *native],
                "instrument": [*record, "--engine", "instrument", "--", *instrumented],
            }
            times, left = self.take_turns(commands, EMULATE_LIMIT_S)
            if "native" in left or not times["native"]:
                print(f"{' '.join([program, *arguments]):30} native alone takes more than {EMULATE_LIMIT_S} s")
                continue
            base = statistics.median(times["native"])
            row = []
            for name in ratios:
                if name not in commands:
                    row.append("-")
                    continue
                if name in left:
                    row.append(f"> {EMULATE_LIMIT_S / base:.0f}")
                    continue
                ratios[name].append(statistics.median(times[name]) / base)
                if name != "qemu":
                    self.figure(f"{' '.join([program, *arguments])}, {name} over native", ratios[name][-1], "x")
                row.append(f"{ratios[name][-1]:.1f} ({min(times[name]) / base:.1f}-{max(times[name]) / base:.1f})")
            print(f"{' '.join([program, *arguments]):30} {spread(times['native']):>24} {row[0]:>18} {row[1]:>18} {row[2]:>18}", flush=True)
        for name, values in ratios.items():
            if values:
                mean = math.exp(statistics.mean(math.log(value) for value in values))
                print(f"geometric mean, {name}: {mean:.1f}")
                if name != "qemu":
                    self.figure(f"geometric mean, {name} over native", mean, "x", goal="at most 8" if name == "emulate" else "")
        print("goal: emulate at most 8; what QEMU alone takes of that is in its column (offline processing included in the other two)")

    def take_turns(self, commands, limit_s):
        """Times of commands that take turns, and those that took more than `limit_s` seconds once (and are left alone then). Three rounds, or as many as
        three times the limit holds."""
        times, left, began = {name: [] for name in commands}, set(), time.monotonic()
        for _ in range(self.rounds(3)):
            for name in [name for name in commands if name not in left]:
                start = time.monotonic()
                process = subprocess.Popen(commands[name], cwd=self.scratch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                           env={**os.environ, "OMP_WAIT_POLICY": "passive"}, start_new_session=True)
                try:
                    if process.wait(limit_s) != 0:
                        sys.exit(f"bench: {' '.join(commands[name])} failed with {process.returncode}")
                    times[name].append(time.monotonic() - start)
                except subprocess.TimeoutExpired:
                    left.add(name)
                finally:
                    if process.poll() is None:
                        end_group(process)
            if time.monotonic() - began > 3 * limit_s:
                break
        return times, left

    def drain(self):
        """What a sample costs from a ring to the trace's files, by the recorder's own reader."""
        heading("drain: one sample from the kernel's ring to the trace's files, kept or discarded (one core, CPU time, medians of 15 full rings)")
        test = ["cargo", "test", "--quiet", "--release", "--locked", "-p", "numapilot-sources", "--lib", "live::tests::rates", "--", "--nocapture"]
        environment = {**self.environment(), "NUMAPILOT_TEST_FULL": "1"}
        done = subprocess.run(test, cwd=self.root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        costs = [json.loads(line.partition("COST ")[2]) for line in (done.stdout + done.stderr).splitlines() if "COST " in line]
        if done.returncode != 0 or not costs:
            sys.exit(f"bench: {' '.join(test)}\nfailed with {done.returncode}:\n{done.stderr[-2000:]}")
        print(f"{'samples':20} {'':10} {'ns':>26} {'cycles':>8} {'MemProf cycles':>16} {'million/s':>10}")
        for cost in costs:
            theirs = MEMPROF_SAMPLE_CYCLES[cost["sample"]]
            peer = {"peer": "MemProf's cycles, with the interrupt", "peer_value": theirs / cost["cycles"] * cost["ns"]}
            self.figure(f"{cost['kind']}, {cost['sample']}", cost["ns"], "ns", goal="200", **peer)
            ns = f"{cost['ns']:.0f} ({cost['least']:.0f} to {cost['greatest']:.0f})"
            print(f"{cost['kind']:20} {cost['sample']:10} {ns:>26} {cost['cycles']:>8.0f} {theirs:>16} {1e3 / cost['ns']:>10.2f}")
        print("goal: 5 million drained a second; MemProf's figures have the interrupt in them, ours begin at the ring")

    def plan(self):
        """CPU time of allocation-heavy programs under `run --plan` over the same programs alone."""
        heading("plans: user CPU time under `run --plan` over native, with no rule that matches, and with one that takes every block of 64 bytes or more")
        plans = {"no match": 'function = "no_such_function"', "match": 'min_size = 64'}
        for name, condition in plans.items():
            with open(os.path.join(self.scratch, name + ".toml"), "w") as file:
                file.write(f'version = 1\n[[object]]\n{condition}\npolicy = "interleave"\n')
        source = os.path.join(ROOT, "workloads/streamcluster/streamcluster.cpp")
        json_loop = "import json\nfor i in range(8): json.loads(json.dumps([{str(k): [k, k / 3]} for k in range(60000)]))"
        programs = {
            "python3, JSON": ["python3", "-c", json_loop],
            "g++ -O1": ["g++", "-O1", "-std=c++20", "-I" + os.path.join(ROOT, "workloads/common"), "-c", source, "-o", "/dev/null"],
            "psearchy": [os.path.join(self.build, "native", "psearchy"), "--threads", "4"],
            "malloc and free alone": [self.compile_lifecycle(), "8000000"],
        }
        print(f"{'program':24} {'native s':>24} {'no match':>10} {'match':>10}")
        for name, command in programs.items():
            if not os.path.exists(command[0]) and not shutil.which(command[0]):
                print(f"{name:24} not built")
                continue
            times = {"native": [], "no match": [], "match": []}
            for _ in range(self.rounds(7)):
                for way, values in times.items():
                    options = ["--plan", os.path.join(self.scratch, way + ".toml"), "--fold", "--quiet"]
                    alone = way == "native"
                    # The program alone is started by `run` as well, so that only the plan differs.
                    started = [self.numapilot, "run", *([] if alone else options), "--", *command]
                    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
                    run(started, cwd=self.scratch)
                    values.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
            native = statistics.median(times["native"])
            ratios = [statistics.median(times[way]) / native for way in ("no match", "match")]
            for way, ratio, most in zip(plans, ratios, ("1.02", "1.05")):
                self.figure(f"{name}, {way}, over native", ratio, "x", goal="" if name == "malloc and free alone" else f"at most {most}")
            print(f"{name:24} {spread(times['native']):>24} {ratios[0]:>10.3f} {ratios[1]:>10.3f}", flush=True)
        print("goals: at most 1.02 and 1.05 on programs (the last line is no program: it does nothing else)")

    def fault(self):
        """How much slower a program that does nothing but fault runs, by its own clock."""
        heading("fault: slow-down of a program that does nothing but touch pages (655,360 faults), by its own clock")
        source, program = os.path.join(self.scratch, "faults.c"), os.path.join(self.scratch, "faults")
        with open(source, "w") as file:
            file.write(FAULTS)
        run(["gcc", "-O1", "-g", "-fno-omit-frame-pointer", source, "-o", program])
        trace, data = os.path.join(self.scratch, "f.numatrace"), os.path.join(self.scratch, "f.data")
        perf = ["perf", "record", "-q", "-m", "16M", "-e", "page-faults", "-c", "1", "-d", "-o", data]
        commands = {
            "alone": [program],
            "numapilot, with call chains": [self.numapilot, "record", "--quiet", "--force", "--engine", "fault", "--ring-size", "16384", "-o", trace,
                                            "--", program],
        }
        if self.has_peer("perf"):
            commands["perf record -d"] = [*perf, "--", program]
            commands["perf record -d -g"] = [*perf, "-g", "--", program]
        elif not self.is_side:
            print("perf is not installed: no peer to compare with")
        times = {name: [] for name in commands}
        for _ in range(self.rounds(3)):
            for name, command in list(commands.items()):
                done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                if done.returncode != 0:
                    print(f"NOT RUN: {name}: {done.stderr.strip()[-300:]}")
                    del commands[name], times[name]
                    continue
                times[name].append(float(done.stdout.split()[0]))
        alone = statistics.median(times["alone"])
        for name, values in times.items():
            each = statistics.median(values) / 655360 * 1e9
            if name.startswith("numapilot"):
                theirs = times.get("perf record -d -g")
                peer = {"peer": "perf record -d -g", "peer_value": statistics.median(theirs) / 655360 * 1e9} if theirs else {}
                self.figure("a recorded page fault, with its call chain", each, "ns", **peer)
            print(f"{name:28} {spread([value / 655360 * 1e9 for value in values]):>28} ns a fault {statistics.median(values) / alone:>6.2f} x")
        if "numapilot, with call chains" in times:
            meta = json.load(open(os.path.join(trace, "meta.json")))
            print(f"numapilot: {meta['events']['page_faults']} faults recorded, {meta['events']['lost_records']} lost")
