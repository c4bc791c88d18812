"""What is measured on the machine as it runs: its memory, the balancer on it, copies, the live screen."""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time

from benchmarks.base import ROOT, Bench, heading, paired, run, spread
from benchmarks.programs import SLEEPERS, STEADY_FAULTS

# Pairs of runs of `measure` and its peers.
MEASURE_RUNS = 5


class Hardware(Bench):
    def measure(self):
        """`numapilot measure` against the loops of lat_mem_rd and STREAM, written from their descriptions, and against packaged tools."""
        peers = os.path.join(ROOT, "crates/measure/benches-c")
        caches = [int(run(["getconf", name]).split()[0] or 0) for name in ("LEVEL2_CACHE_SIZE", "LEVEL3_CACHE_SIZE")]
        cpus = sorted(os.sched_getaffinity(0))
        self.measure_latency(peers, cpus[0])
        # Three arrays of a third of four times the last-level cache, or of a quarter of free memory, if that is less.
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        array = min(4 * max(caches), free // 4) // 3 // 65536 * 65536 or 1 << 26
        for chosen in [cpus[:1], cpus] if len(cpus) > 1 else [cpus]:
            self.measure_bandwidth(peers, chosen, array)
        if not self.is_side:
            self.measure_packages(cpus, array)

    def short_measurement(self, options):
        """The JSON of one short measurement."""
        return json.loads(run([self.numapilot, "measure", "--json", "--quiet", *options]))

    def measure_latency(self, peers, cpu):
        heading(f"measure: latency of a chase on CPU {cpu} against lat_mem_rd's loop, ns per load (least of each run; {MEASURE_RUNS} pairs, taking turns)")
        chase = os.path.join(self.scratch, "chase_peer")
        run(["gcc", "-O2", os.path.join(peers, "chase_peer.c"), "-o", chase])
        print(f"{'array':>8} {'walk':>8} {'numapilot':>26} {'peer':>26} {'ratio of pairs':>22} {'best/best':>10}")
        for size, name in [(1 << 17, "128 KiB"), (1 << 20, "1 MiB"), (1 << 24, "16 MiB"), (1 << 28, "256 MiB")]:
            for walk in ["64", "128", "256", "random"]:
                ours, theirs = [], []
                stride = ["--stride", walk] if walk != "random" else []
                for _ in range(self.rounds(MEASURE_RUNS)):
                    options = ["--only", "latency", "--cpus", str(cpu), "--size", str(size), "--for", "0.5s", *stride]
                    wanted = "random" if walk == "random" else {"strided": int(walk)}
                    ours += [cell["ns"]["best"] for cell in self.short_measurement(options)["latency"] if cell["walk"] == wanted]
                    theirs.append(float(run(["taskset", "-c", str(cpu), chase, str(size), walk, "50"]).split()[0]))
                peer = {"peer": "lat_mem_rd's loop", "peer_value": min(theirs), "goal": "within 3 % of the peer's"}
                self.figure(f"latency, {name}, {walk if walk == 'random' else f'stride {walk}'}", min(ours), "ns", better="neither", **peer)
                print(f"{name:>8} {walk:>8} {spread(ours):>26} {spread(theirs):>26} {paired(ours, theirs):>22} {min(ours) / min(theirs):>10.3f}",
                      flush=True)
        print("goal: within 3 %")

    def measure_bandwidth(self, peers, cpus, array):
        heading(f"measure: bandwidth on {len(cpus)} CPUs against STREAM (-O3 -march=native, OpenMP), GB/s (best of each run; {MEASURE_RUNS} pairs, in turn; "
                f"arrays of {array >> 20} MiB)")
        stream = os.path.join(self.scratch, "stream_peer")
        run(["gcc", "-O3", "-march=native", "-fopenmp", "-mcmodel=medium", f"-DELEMENTS={array // 8}", os.path.join(peers, "stream_peer.c"), "-o", stream])
        environment = {**os.environ, "OMP_NUM_THREADS": str(len(cpus)), "OMP_PROC_BIND": "true"}
        names = ["copy", "scale", "add", "triad"]
        ours, theirs = ({name: [] for name in names} for _ in range(2))
        chosen = ",".join(map(str, cpus))
        for _ in range(self.rounds(MEASURE_RUNS)):
            cells = self.short_measurement(["--only", "bandwidth", "--cpus", chosen, "--size", str(array), "--for", "8s"])["bandwidth"]
            for name in names:
                # STREAM's compiler may take stores that pass the caches by (as memcpy does), or not: so may we.
                rates = [cell["bytes_per_s"]["best"] for cell in cells
                         if cell["cpus"] == len(cpus) and cell["kernel"] in (name, f"{name}_nt")]
                ours[name].append(max(rates) / 1e9)
            for line in run(["taskset", "-c", chosen, stream, "12"], env=environment).splitlines():
                name, best, _ = line.split()
                theirs[name].append(float(best) / 1e9)
        print(f"{'kernel':>8} {'numapilot':>26} {'peer':>26} {'ratio of pairs':>22} {'best/best':>10}")
        for name in names:
            pairs, best = paired(ours[name], theirs[name]), max(ours[name]) / max(theirs[name])
            peer = {"peer": "STREAM", "peer_value": max(theirs[name]), "goal": "at least 0.98 of the peer's"}
            self.figure(f"bandwidth, {name}, {len(cpus)} CPUs", max(ours[name]), "GB/s", better="neither", **peer)
            print(f"{name:>8} {spread(ours[name]):>26} {spread(theirs[name]):>26} {pairs:>22} {best:>10.3f}", flush=True)
        print("goal: at least 0.98")

    def measure_packages(self, cpus, array):
        """The figures of packaged tools; each counts and loops in its own way, so without ratios."""
        heading("measure: packaged tools on one CPU, as they say it (different loops and counts: no ratios)")
        pin = ["taskset", "-c", str(cpus[0])]
        commands = {
            "likwid-bench, triad": ["likwid-bench", "-t", "triad", "-W", f"N:{3 * array // 1000}kB:1"],
            "mbw, memcpy": ["mbw", "-q", "-t0", "-n", "5", str(array >> 20)],
            "sysbench, read": ["sysbench", "memory", "--memory-block-size=64M", "--memory-total-size=20G", "--memory-oper=read", "--time=3", "run"],
            "stress-ng, stream": ["stress-ng", "--stream", "1", "--stream-l3-size", str(array // 4), "--timeout", "3", "--metrics"],
        }
        wanted = re.compile(r"^(MByte/s|AVG).*|.*(MiB/sec|MB per sec|memory rate).*", re.M)
        for name, command in commands.items():
            if not shutil.which(command[0]):
                print(f"{name:22} NOT RUN: not installed")
                continue
            done = subprocess.run([*pin, *command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=self.scratch)
            found = [" ".join(match.group(0).split()) for match in wanted.finditer(done.stdout)]
            print(f"{name:22} " + ("; ".join(found[:3]) if found and done.returncode == 0 else f"NOT RUN: {done.stdout.strip()[-160:]}"))

    def balance(self):
        """The overhead of `balance`: all of it on this machine, and of storing and evaluating evidence on machine models."""
        heading("balance: its own CPU at 10,000 samples a second of a program of 256 MiB, nothing being moved (--dry-run; goal: under 0.5 % of a CPU)")
        source, program = os.path.join(self.scratch, "steady.c"), os.path.join(self.scratch, "steady")
        with open(source, "w") as file:
            file.write(STEADY_FAULTS)
        run(["gcc", "-O2", "-pthread", source, "-o", program])
        young, whole = 10, 60
        target = subprocess.Popen([program, "10000", str(whole + 5)])
        command = [self.numapilot, "balance", "--dry-run", "--json", "--pid", str(target.pid), "--for", f"{whole}s"]
        daemon = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        events = [json.loads(line) for line in self.after(daemon, [young, whole / 2]) if line.startswith("{")]
        target.kill()
        target.wait()
        stop = next((event for event in events if event["event"] == "stop"), None)
        if stop is None or stop["counters"]["hint_faults"] == 0:
            print("NOT RUN: no page faults can be seen here (kernel.perf_event_paranoid)")
            return
        counters, cpu_s, (first_s, half_s) = stop["counters"], stop["own"]["cpu_ns"] / 1e9, self.cpu_at
        later = 100 * (cpu_s - half_s) / (whole / 2)
        samples = counters["hint_faults"]
        self.figure("own CPU, last half of a minute", later, "% of a CPU", goal="under 0.5")
        self.figure("a sample, everything in", 1e9 * cpu_s / samples, "ns")
        print(f"{samples} samples in {counters['observations']} looks; "
              f"first {young} s {100 * first_s / young:.2f} %, last {whole // 2} s {later:.2f} % of a CPU; "
              f"deciding {100 * counters['deciding_ns'] / 1e9 / whole:.2f} %; {1e9 * cpu_s / samples:.0f} ns a sample, everything in; "
              f"{stop['own']['resident_bytes'] / (1 << 20):.0f} MiB; losses {counters['samples_lost']}")
        heading("balance: keeping and weighing evidence alone, 10,000 samples a second, 30 s of made-up time (ns and % of a CPU: first 5 s, later)")
        output = self.example("numapilot-balancer", "own_cost")
        for line in map(json.loads, output.splitlines()):
            self.figure(f"evidence, {line['nodes']} nodes, {line['pages'] // 256} MiB, {line['users']}", line["later_ns_per_sample"], "ns a sample")
            print(f"{line['nodes']} nodes, {line['pages'] // 256:>5} MiB, {line['users']:8} "
                  f"{line['first_ns_per_sample']:>6} ns {line['first_percent']:>6.2f} % "
                  f"{line['later_ns_per_sample']:>6} ns {line['later_percent']:>6.2f} %   {line['decisions']:>3} decisions, {line['moved']} pages moved, "
                  f"{line['moved_later']} of them later")

    def after(self, daemon, moments):
        """The daemon's output after its end; `cpu_at`: its CPU seconds at these moments."""
        start, self.cpu_at = time.monotonic(), []
        for moment in moments:
            time.sleep(max(0, start + moment - time.monotonic()))
            try:
                with open(f"/proc/{daemon.pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                self.cpu_at.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))
            except (OSError, IndexError):
                self.cpu_at.append(0.0)
        return daemon.communicate()[0].splitlines()

    def replica(self):
        """A read section of a replica beside a plain read and a read-write lock."""
        heading("replica: one read of a word, ns of CPU time (medians of 9 rounds, peers taking turns; the slowest thread)")
        output = self.example("numapilot-replica", "read_cost")
        lines = [json.loads(line) for line in output.splitlines()]
        for threads in sorted({line["threads"] for line in lines}):
            costs = {line["read"]: line["ns"] for line in lines if line["threads"] == threads}
            print(f"{threads:>3} threads: " + ", ".join(f"{name} {ns:.2f}" for name, ns in costs.items()))
            section, lock = costs["section"] - costs["plain"], costs["rwlock"] - costs["plain"]
            peer = {"peer": "RwLock", "peer_value": lock}
            self.figure(f"added to a read by a section, {threads} threads", section, "ns", **peer)
            print(f"             a section adds {section:.2f} ns to a plain read; a lock adds {lock:.2f} ns")
        print(f"copies: {lines[0]['nodes']}; with one, a section looks no node up")

    def top(self):
        heading("top: cost at one-second refresh with 5,000 sleeping processes (goal: under 1 % of a CPU, first picture within 100 ms)")
        program = os.path.join(self.scratch, "sleepers")
        run(["cc", "-O1", "-static", "-x", "c", "-o", program, "-"], input=SLEEPERS)
        sleepers = subprocess.Popen([program, "5000"], stdout=subprocess.PIPE, text=True)
        try:
            print(f"processes added: {sleepers.stdout.readline().strip()}")
            peers = [("numapilot top", [self.numapilot, "top", "--interval", "1"])]
            for name, command in [] if self.is_side else [("top", ["top", "-d", "1"]), ("numatop", ["numatop"])]:
                if shutil.which(name):
                    peers.append((name, command))
                else:
                    print(f"{name}: not installed")
            for name, command in peers:
                first, share, ended = self.watched(command, 30)
                if ended is not None:
                    print(f"{name:<14} NOT RUN: it ended by itself: {ended}")
                    continue
                if name == "numapilot top":
                    self.figure("CPU with 5,000 processes", share * 100, "% of a CPU", goal="under 1")
                    self.figure("first picture", first * 1000 if first else None, "ms", goal="100")
                told = f"first output after {first * 1000:.0f} ms, " if first else "no output, "
                print(f"{name:<14} {told}{share * 100:.2f} % of a CPU over 30 s")
        finally:
            sleepers.kill()
            sleepers.wait()

    def watched(self, command, seconds):
        """Runs a full-screen program on a terminal of its own: seconds until its first output, its CPU time as a share of one CPU, and, if it ended by
        itself, its last words."""
        start = time.monotonic()
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ["TERM"] = "xterm-256color"
            os.execvp(command[0], command)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        first, cut, words = None, False, b""
        while True:
            if not cut and time.monotonic() - start > seconds:
                os.kill(pid, signal.SIGTERM)
                cut = True
            if not select.select([terminal], [], [], 0.2)[0]:
                continue
            try:
                got = os.read(terminal, 65536)
            except OSError:
                break
            if not got:
                break
            words = (words + got)[-400:]
            first = first or time.monotonic() - start
        _, _, usage = os.wait4(pid, 0)
        os.close(terminal)
        ended = None if cut else " ".join(words.decode(errors="replace").split())
        return first, (usage.ru_utime + usage.ru_stime) / (time.monotonic() - start), ended
