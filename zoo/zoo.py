"""The steps of one program, in order: fetch, build twice, make inputs, run natively and under instrument, emulate and track.

Each is done once, until something that it depends on changes.
"""

import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import fetch
import files
import judge
import loop
import steps
import store

MACHINE = "opteron-8385"
ENGINES = ["instrument", "again", "emulate", "track"]
# Number of native runs: their output must not differ, and the shortest run counts.
NATIVE_RUNS = 3
SEED = {"again": 2}
BUILD_LIMIT_S, INPUT_LIMIT_S = 1800, 300
LIMIT_S = {"native": 120, "track": 300, "instrument": 600, "again": 600, "emulate": 1200, "loop": 600}


class Failed(Exception):
    """Why a step came to nothing."""


def revision(root):
    """Of the sources, `+` where they are changed."""
    done = subprocess.run(["git", "-C", root, "describe", "--always", "--dirty=+", "--exclude=*"], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def copies_of_libc():
    """Ranges of the C library's block copies, from its debug package (libc6-dbg): the library itself does not name them. Empty without it."""
    known = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    library = next((line.split()[-1] for line in known.splitlines() if "libc.so.6 " in line and "x86-64" in line), "")
    notes = subprocess.run(["readelf", "-n", library], capture_output=True, text=True, check=False).stdout
    build_id = notes.partition("Build ID: ")[2].split("\n")[0].strip()
    path = f"/usr/lib/debug/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    return judge.ranges_of(subprocess.run(["readelf", "-sW", path], capture_output=True, text=True, check=False).stdout)


def offered(program, folder):
    """Functions that the libraries of its programs offer."""
    names = set()
    for word in program.run:
        path = os.path.join(folder, word)
        libraries = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout if os.path.isfile(path) else ""
        for library in (words[2] for line in libraries.splitlines() if len(words := line.split()) > 2 and words[1] == "=>"):
            symbols = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=False).stdout
            named = (words[2] for line in symbols.splitlines() if len(words := line.split(None, 2)) == 3)
            # Without parameters and versions, as reports name functions.
            names.update(name.partition("(")[0].partition("@")[0] for name in named)
    return names


class Zoo:
    """One binary, one store."""

    def __init__(self, root, numapilot, folder, jobs, engines, of_revision="", limit_s=float("inf")):
        self.root, self.store, self.jobs, self.engines = root, store.Store(folder), jobs, engines
        # Of every step that starts the program or its build, beside the step's own.
        self.limit_s = limit_s
        self.numapilot = os.path.abspath(numapilot)
        if not os.access(self.numapilot, os.X_OK):
            sys.exit(f"zoo: {numapilot}: no such program; `make build` makes it")
        self.binary, self.revision = store.hash_of(self.numapilot), of_revision or revision(root)
        self.archive = fetch.Archive(self.store.path("apt"))
        self.lock = threading.Lock()
        # One apt, one dpkg at a time.
        self.packages = threading.Lock()
        self.compilers = self.wrappers()
        self.copies = copies_of_libc()

    def say(self, text):
        with self.lock:
            print(f"zoo: {text}", file=sys.stderr, flush=True)

    def wrappers(self):
        """The wrapper as one word for each language, as CMake and libtool want it."""
        made = {}
        for variable, language, plain in (("CC", "cc", "gcc"), ("CXX", "c++", "g++"), ("FC", "fc", "gfortran")):
            path = self.store.path("bin", f"numapilot-{plain}")
            text = f'#!/bin/sh\nexec "{self.numapilot}" {language} "$@"\n'
            # Another zoo may be using it.
            if fetch.read(path) != text:
                files.write(path, text)
                os.chmod(path, 0o755)
            made[variable] = (plain, path)
        return made

    def callouts(self):
        """What a recompiled program has of ours: it is built anew only when this changes. The linker names the archive."""
        words = [self.numapilot, "cc", "-Wl,-t", "-x", "c", "-", "-o", self.store.path("linked")]
        done = subprocess.run(words, input="int main(void) { return 0; }", capture_output=True, text=True, check=False)
        linked = done.stdout.replace("(", " ").replace(")", " ").split()
        found = sorted({word for word in linked if "callouts" in word and os.path.isfile(word)})
        return [store.hash_of(path) for path in found] or self.binary

    def environment(self, name, variant):
        compilers = {variable: both[variant != "native"] for variable, both in self.compilers.items()}
        keep = {key: os.environ[key] for key in ("PATH", "HOME", "NUMAPILOT_QEMU") if key in os.environ}
        return {
            **keep,
            **compilers,
            "F77": compilers["FC"],
            "F90": compilers["FC"],
            "LC_ALL": "C.UTF-8",
            "JOBS": str(self.jobs),
            "TREE": self.store.tree(name, variant),
            "IN": self.store.inputs(name),
            "MAKE_INPUT": f"python3 {os.path.join(self.root, 'zoo', 'inputs.py')}",
            # OpenMP's threads on two CPUs would otherwise spin against each other.
            "OMP_WAIT_POLICY": "passive",
        }

    def step(self, program, results, name, key, work):
        """Does one step unless it is kept; keeps what comes of it, also that it failed."""
        kept = results.get(name)
        if kept and kept.get("key") == key and not kept.get("failed"):
            return kept
        begun = time.monotonic()
        try:
            done = {"key": key, "failed": "", **work()}
        except (Failed, fetch.Failed) as error:
            done = {"key": key, "failed": str(error)}
        done.update(revision=self.revision, binary=self.binary)
        results[name] = done
        self.store.save(program.name, results)
        self.say(f"{program.name}: {name}: {done['failed'] or 'ok'} ({time.monotonic() - begun:.0f} s)")
        return done

    def fetch(self, program):
        with self.packages:
            self.archive.update()
            fetch.install(program.needs)
            archive = self.store.path("programs", program.name, "archive")
            os.makedirs(os.path.dirname(archive), exist_ok=True)
            version = self.archive.fetch(program.source, archive)
            for variant in ("native", "instrument"):
                self.archive.unpack(archive, self.store.tree(program.name, variant))
        return {"version": version}

    def build(self, program, variant):
        tree = self.store.tree(program.name, variant)
        # What an earlier build left would be taken for this one's.
        shutil.rmtree(tree, ignore_errors=True)
        self.fetch(program)
        log = self.store.path("programs", program.name, f"build-{variant}.log")
        script, limit_s = "exec 2>&1\n" + program.build, min(BUILD_LIMIT_S, self.limit_s)
        took = steps.run(["sh", "-ec", script], tree, self.environment(program.name, variant), log, log + ".err", limit_s, nice=19)
        if took.status != 0:
            raise Failed(f"build failed ({took.problem or took.status}): {steps.tail(log)}")
        return {"wall_s": round(took.wall_s, 1), "cpu_s": round(took.cpu_s, 1)}

    def inputs(self, program):
        folder = self.store.inputs(program.name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        log = self.store.path("programs", program.name, "input.log")
        script = "exec 2>&1\n" + (program.input or ":")
        took = steps.run(["sh", "-ec", script], folder, self.environment(program.name, "native"), log, log + ".err", min(INPUT_LIMIT_S, self.limit_s))
        if took.status != 0:
            raise Failed(f"input failed ({took.problem or took.status}): {steps.tail(log)}")
        return {}

    def run(self, program, engine, options=()):
        """One run: what it put out, and what it took. `options`: further ones of `record`."""
        folder = self.store.run(program.name, engine)
        out = os.path.join(folder, "out")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(out)
        variant = "instrument" if engine in ("instrument", "again", "loop") else "native"
        # The same words for every engine, for programs that print their command.
        os.symlink(self.store.tree(program.name, variant), os.path.join(out, "tree"))
        os.symlink(self.store.inputs(program.name), os.path.join(out, "in"))
        environment = self.environment(program.name, variant)
        command = list(program.run)
        trace = os.path.join(folder, "trace.numatrace")
        if engine != "native":
            kind = {"again": "instrument", "loop": "instrument"}.get(engine, engine)
            machine = [] if kind == "track" else ["--machine", MACHINE]
            seed = [] if kind == "track" or options else ["--seed", str(SEED.get(engine, 1))]
            command = [self.numapilot, "record", "--quiet", "-o", trace, "--engine", kind, *machine, *seed, *options, "--", *command]
        stdout, stderr = os.path.join(out, "stdout"), os.path.join(folder, "stderr")
        arguments = (out, environment, stdout, stderr, min(LIMIT_S[engine], self.limit_s))
        took = steps.run_with_client(command, program.client, *arguments) if program.client else steps.run(command, *arguments)
        if took.status != 0:
            raise Failed(f"{took.problem or f'ended with {took.status}'}: {steps.tail(stderr)}")
        return {"output": self.output(program, out), "wall_s": took.wall_s, "cpu_s": took.cpu_s, "rss_kib": took.rss_kib}

    def output(self, program, out):
        """Hashes of what it wrote, by file: standard output, what the client printed, and files; filtered."""
        found = {}
        for folder, _, names in os.walk(out):
            for name in names:
                path = os.path.join(folder, name)
                label = os.path.relpath(path, out)
                if os.path.islink(path) or not os.path.isfile(path) or label == "client.err" or any(fnmatch.fnmatch(label, one) for one in program.ignore):
                    continue
                with open(path, "rb") as file:
                    content = file.read()
                if program.filter:
                    environment = {"LC_ALL": "C", "PATH": os.environ["PATH"]}
                    sed = subprocess.run(["sed", "-E", program.filter], input=content, capture_output=True, check=False, env=environment)
                    if sed.returncode != 0:
                        raise Failed(f"the manifest's filter is wrong: {sed.stderr.decode().strip()}")
                    content = sed.stdout
                if program.sorted:
                    content = b"\n".join(sorted(content.split(b"\n")))
                found[label] = hashlib.sha256(content).hexdigest()[:16]
        return found

    def native(self, program):
        runs = [self.run(program, "native") for _ in range(NATIVE_RUNS)]
        differing = judge.differing([run["output"] for run in runs])
        if differing:
            raise Failed(f"the output differs from run to run natively: {', '.join(differing)}")
        return {**runs[0], **{what: min(run[what] for run in runs) for what in ("wall_s", "cpu_s", "rss_kib")}}

    def engine(self, program, engine, native):
        done = self.run(program, engine)
        differing = judge.differing([native["output"], done["output"]])
        done["same_output"] = not differing
        done["differing"] = differing
        trace = os.path.join(self.store.run(program.name, engine), "trace.numatrace")
        report = self.ask("report", trace, "--json", "--top", "1000000")
        done.update(judge.recording(json.loads(report)))
        if engine != "track":
            folder = os.path.join(self.store.run(program.name, engine), "out")
            rows = self.ask("report", trace, "--csv", "-", "--table", "accesses")
            sites = {str(site["key"]["site"]): judge.site_name(site) for site in json.loads(report)["sites"] if isinstance(site["key"], dict)}
            callers = judge.callers(self.ask("report", trace, "--csv", "-", "--table", "stacks"))
            done["seen"] = judge.seen(rows, sites, self.copies, callers, offered(program, folder))
        done["trace_mib"] = round(sum(os.path.getsize(os.path.join(trace, name)) for name in os.listdir(trace)) / 2**20, 2)
        shutil.rmtree(trace)
        return done

    def closed_loop(self, program):
        """What `whatif` predicts of a recording, beside what recordings with each change find (tools/loop.py)."""
        folder = self.store.path("programs", program.name, "loop")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)

        def record(name, *options):
            self.run(program, "loop", options)
            to = os.path.join(folder, name)
            os.replace(os.path.join(self.store.run(program.name, "loop"), "trace.numatrace"), to)
            return to

        try:
            rows = loop.rows(program.name, record, self.ask, folder)
        except (OSError, ValueError, KeyError) as error:
            raise Failed(f"closed loop: {error!r}") from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return {"rows": [loop.kept(one) for one in rows]}

    def loop_of(self, program):
        """Does the closed loop of a program that was built; its rows, or why there are none."""
        results = self.store.load(program.name)
        built = results.get("build-instrument", {"failed": "not built"})
        if built["failed"] or results.get("native", {"failed": "not run"})["failed"]:
            return [], "not built, or its native run failed: without --loop first"
        key = store.key_of(built["key"], program.run, program.client, self.binary, loop.RUNS)
        done = self.step(program, results, "loop", key, lambda: self.closed_loop(program))
        return [loop.Row(**one) for one in done.get("rows", [])], done["failed"]

    def ask(self, *words):
        done = subprocess.run([self.numapilot, *words], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"numapilot {words[0]} failed with {done.returncode}: {done.stderr.strip()[-400:]}")
        return done.stdout

    def all_of(self, program):
        """Every step of one program; what fails ends what needs it."""
        results = self.store.load(program.name)
        results["program"] = {key: getattr(program, key) for key in ("name", "source", "languages", "threading", "system")}
        source = self.step(program, results, "source", store.key_of(program.source, program.needs), lambda: self.fetch(program))
        if source["failed"]:
            return results
        # Their debug information names the folder in which they were built, and `emulate` reads sources there.
        keys = {variant: store.key_of(program.build, source["version"], self.store.tree(program.name, variant)) for variant in ("native", "instrument")}
        keys["instrument"] = store.key_of(keys["instrument"], self.callouts())
        for variant in ("native", "instrument"):
            name = f"build-{variant}"
            self.step(program, results, name, keys[variant], lambda variant=variant: self.build(program, variant))
        if results["build-native"]["failed"]:
            return results
        key = store.key_of(program.input, keys["native"])
        if self.step(program, results, "input", key, lambda: self.inputs(program))["failed"]:
            return results
        key = store.key_of(key, program.run, program.client, program.filter, program.ignore, program.sorted)
        native = self.step(program, results, "native", key, lambda: self.native(program))
        if native["failed"]:
            return results
        for engine in self.engines:
            built = results["build-instrument"]
            if engine in ("instrument", "again") and built["failed"]:
                results[engine] = {"key": "", "failed": "not built", "revision": self.revision}
                continue
            of_engine = store.key_of(key, self.binary, self.copies, judge.SEEN, built["key"] if engine in ("instrument", "again") else "")
            self.step(program, results, engine, of_engine, lambda engine=engine: self.engine(program, engine, native))
        self.store.save(program.name, results)
        return results
