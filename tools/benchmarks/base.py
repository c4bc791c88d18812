"""What all benchmarks use: the revision that is measured (its program, its sources, its target folder), a scratch folder, and the figures found."""

import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from benchmarks.figures import Figure, is_number

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target")))
MACHINE = "opteron-8385"


def run(command, **more):
    """Runs a command that must succeed; its standard output."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"bench: {' '.join(command)}\nfailed with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def end_group(process):
    """Ends a process that leads a session, with all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # All have ended.
    process.wait()


def heading(title):
    print(f"\n== {title}", flush=True)


def paired(ours, theirs):
    """Ratios of pairs that were measured one after the other, so that other load affects both."""
    ratios = [mine / other for mine, other in zip(ours, theirs)]
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


class Bench:
    """Measures one revision: `numapilot` is its program, `build` has the programs that are recorded, `root` its sources, `target` where cargo builds them.

    `is_side`: one side of a comparison, whose rounds repeat the benchmark, so that it repeats nothing itself.
    """

    def __init__(self, numapilot, build, root=ROOT, target=TARGET, is_side=False):
        self.numapilot = os.path.abspath(numapilot)
        self.build = os.path.abspath(build)
        self.root, self.target, self.is_side = root, target, is_side
        self.scratch = tempfile.mkdtemp(prefix="numapilot-bench-")
        self.benchmark, self.found = "", []

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def measure_one(self, benchmark):
        """Runs the benchmark of this name; its figures."""
        self.benchmark, self.found = benchmark, []
        # `import` is no name that a method can have, `measure` and `bytes` are.
        getattr(self, "imports" if benchmark == "import" else benchmark)()
        return self.found

    def figure(self, name, value, unit, **more):
        """Keeps a figure of the present benchmark. What is not finite (a ratio over nothing) is none. More is better of what is per second."""
        if is_number(value):
            better = more.pop("better", "more" if unit.endswith("/s") else "less")
            self.found.append(Figure(self.benchmark, name, value, unit, better, **more))

    def read(self, output, pattern, name, unit, **more):
        """Keeps the figure that the first match of a pattern has in its group."""
        found = re.search(pattern, output)
        if found:
            self.figure(name, float(found[1]), unit, **more)

    def rounds(self, count):
        return 1 if self.is_side else count

    def has_peer(self, name):
        """Whether a peer is to be measured too: not beside the sides of a comparison."""
        return not self.is_side and shutil.which(name) is not None

    def cargo(self, *words):
        """Runs cargo on the sources of this revision; its standard output."""
        return run(["cargo", *words], cwd=self.root, env=self.environment())

    def environment(self):
        return {**os.environ, "CARGO_TARGET_DIR": self.target}

    def example(self, package, name, *features):
        """Builds and runs an example of a crate; what it printed."""
        return self.cargo("run", "--quiet", "--release", "--locked", "-p", package, *features, "--example", name)

    def record(self, trace, options, command):
        trace = os.path.join(self.scratch, trace)
        start = time.monotonic()
        run([self.numapilot, "record", "--quiet", "--force", "-o", trace, *options, "--", *command], cwd=self.scratch)
        return trace, time.monotonic() - start

    def compile_lifecycle(self):
        program = os.path.join(self.scratch, "lifecycle")
        if not os.path.exists(program):
            source = os.path.join(ROOT, "crates/runtime/benches-c/lifecycle.c")
            run(["gcc", "-O2", "-g", "-pthread", source, "-o", program])
        return program
