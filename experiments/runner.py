"""Records and simulates, with everything kept in one folder. The only file here that starts processes."""

import concurrent.futures
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import files
import loop
import plan
import variants

RATE_HZ = "500000"
# Simulations at once; each takes one core and up to a few hundred MB.
AT_ONCE = 2
# What is stopped gets so many seconds to end by itself, as `record` does when it is interrupted.
GRACE_S = 20


class Failed(Exception):
    """A command that failed; says which, and what it said."""


class OutOfTime(Exception):
    """What was to be done is left for the next run."""


def run(command, cwd=None, seconds=None):
    """What a command prints. With `seconds`: it is stopped after these, with all that it started, whatever it has done by then."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, start_new_session=True) as process:
        try:
            printed, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            stop(process)
            raise OutOfTime(" ".join(command)) from None
        except BaseException:
            stop(process)
            raise
    if process.returncode != 0:
        raise Failed(f"{' '.join(command)}: failed with {process.returncode}: {said.strip()[-2000:]}")
    return printed


def stop(process):
    """Ends a command and all that it started: first so that they can tidy up (Ctrl-C would not do, as what runs in the background ignores it)."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
            process.communicate(timeout=GRACE_S)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            pass


class Lab:
    """One binary, one folder of instrumented programs (the same without call-outs in a folder `native` beside it), one folder of results."""

    def __init__(self, numapilot, workloads, out, minutes=None):
        # What is stopped then may take its time to end.
        self.until = None if minutes is None else time.monotonic() + 60 * minutes - min(GRACE_S, 30 * minutes)
        # What there was no time for.
        self.pending = []
        # Programs (with their builds) that are up to date; what is being done, of how much.
        self.built, self.place = set(), ""
        # Recordings that failed, with what they said: they are not tried again for each question about them.
        self.failed = {}
        self.numapilot, self.workloads, self.out = map(os.path.abspath, (numapilot, workloads, out))
        if not os.access(self.numapilot, os.X_OK):
            sys.exit(f"experiments: {numapilot}: no such program; `make build` makes it")
        self.binary_hash = files.hash_of(self.numapilot)
        self.said = threading.Lock()

    def left(self):
        """Seconds that are left; None: no end was set."""
        return None if self.until is None else self.until - time.monotonic()

    @property
    def is_over(self):
        return self.until is not None and self.left() <= 0

    def run(self, command, cwd=None):
        """What a command prints, within the time that is left."""
        if self.is_over:
            raise OutOfTime(" ".join(command))
        return run(command, cwd, self.left())

    def policies(self):
        """Ours and the published ones, and the optimum if this binary knows it."""
        known = {line.split()[0] for line in run([self.numapilot, "simulate", "--list"]).splitlines() if line[:1].strip()}
        return plan.POLICIES + [plan.OPTIMUM] * (plan.OPTIMUM in known)

    def drawn_models(self):
        """Files of the machines drawn from the ranges of the usual one's model."""
        with open(os.path.join(plan.ROOT, "models", f"{plan.MACHINE}.toml"), encoding="utf-8") as file:
            text = file.read()
        paths = []
        for index, drawn in enumerate(variants.variants(text, plan.DRAWN)):
            # The name has the contents: a result that is kept is of this machine.
            digest = hashlib.sha256(drawn.encode()).hexdigest()[:12]
            paths.append(os.path.join(self.out, "machines", f"{plan.MACHINE}-{index}-{digest}.toml"))
            files.write(paths[-1], drawn)
        return paths

    def trace(self, job, machine=plan.MACHINE):
        of_machine = "" if machine == plan.MACHINE else f"-{machine}"
        name = "-".join([job.program, job.variant, *(word.lstrip("-") for word in job.arguments)]) + plan.of_build(job.build)
        return os.path.join(self.out, "traces", f"{name}{of_machine}.numatrace")

    def programs(self, job):
        """The instrumented program and the same without call-outs, as the job's build has them: those that were given, or made here."""
        folders = self.workloads, os.path.join(os.path.dirname(self.workloads), "native")
        if job.build:
            folders = [os.path.join(self.out, "builds", plan.of_build(job.build).lstrip("-"), kind) for kind in ("instrumented", "native")]
            self.build(job, folders)
        program, native = (os.path.join(folder, job.program) for folder in folders)
        # A price that no native run anchors would be of another method than the page says.
        needed = [program, native] if job.arguments else [program]
        for one in needed:
            if not os.access(one, os.X_OK):
                raise Failed(f"{one}: no such program; `make workloads` makes it")
        return program, native if job.arguments else None

    def build(self, job, folders):
        """Brings both programs of a job up to date, once. When the time is over they are taken as they are, so that results that are kept are found."""
        made = [os.path.join(folder, job.program) for folder in folders]
        if (job.build, job.program) in self.built or self.is_over and all(map(os.path.exists, made)):
            return
        compilers = [f"CC={self.numapilot} cc", f"CXX={self.numapilot} c++"]
        for folder, program, with_call_outs in zip(folders, made, (compilers, [])):
            self.run(["make", "-C", os.path.join(plan.ROOT, "workloads"), f"OUT={folder}", f"OPTIMISE={job.build}", *with_call_outs, program])
        self.built.add((job.build, job.program))

    def record(self, job, machine=plan.MACHINE):
        """Unless what is kept is of this binary, program and command; the program verifies itself unless told not to. What the recording depends on.
        Recordings run one at a time, as they use all cores."""
        trace = self.trace(job, machine)
        program, native = self.programs(job)
        command = ["--variant", job.variant, *job.arguments]
        options = ["--machine", machine, "--rate", RATE_HZ]
        hashes = {"binary": self.binary_hash, "program": files.hash_of(program), "native": native and files.hash_of(native)}
        key = {**hashes, "options": options, "command": command}
        if self.kept(f"{trace}.json", key) and os.path.exists(os.path.join(trace, "meta.json")):
            return key
        unfinished = trace.replace(".numatrace", "-unfinished.numatrace")
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(os.path.dirname(trace), exist_ok=True)
        name = " ".join(filter(None, [job.program, *command, job.build]))
        if self.is_over:
            raise OutOfTime(name)
        if trace in self.failed:
            raise Failed(self.failed[trace])
        self.say(f"{self.place}recording {name} on {machine}")
        begun = time.monotonic()
        with_native = ["--native", native] if native else []
        try:
            self.timed(name, [self.numapilot, "record", "--quiet", "-o", unfinished, *options, *with_native, "--", program, *command], self.out)
        except Failed as error:
            self.failed[trace] = str(error)
            raise
        shutil.rmtree(trace, ignore_errors=True)
        os.replace(unfinished, trace)
        files.write(f"{trace}.json", json.dumps({"key": key, "answer": True}))
        self.say(f"recorded {name} on {machine}: {time.monotonic() - begun:.0f} s")
        return key

    def timed(self, name, command, cwd=None):
        """As `run`; tells what was stopped."""
        left = self.left()
        try:
            return self.run(command, cwd)
        except OutOfTime:
            if left > 0:
                self.say(f"stopped after {left:.0f} s: {name}. It is begun again next time; if that is all that was done, give more minutes")
            raise

    def loop(self, program):
        """Predictions of a recording of the program beside what recordings with each change find, and what failed: one failure costs its own row only."""
        variant = plan.PROGRAMS[program]
        folder = os.path.join(self.out, "loop", program)
        kept_at = os.path.join(folder, "rows.json")
        key = {"binary": self.binary_hash, "program": files.hash_of(os.path.join(self.workloads, program)), "runs": loop.RUNS}
        kept = self.kept(kept_at, key)
        if kept is not None:
            return [loop.Row(**one) for one in kept], []
        if self.is_over:
            raise OutOfTime(program)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)

        def ask(*words):
            return self.run([self.numapilot, *words], cwd=folder)

        def record(name, *options):
            command = [os.path.join(self.workloads, program), "--variant", variant, *plan.WHOLE]
            ask("record", "--quiet", "--machine", plan.MACHINE, "--rate", RATE_HZ, "-o", os.path.join(folder, name), *options, "--", *command)
            return os.path.join(folder, name)

        failures = []

        def on_failure(what, error):
            if isinstance(error, OutOfTime):
                raise error
            failures.append(f"{program}, {what}: {error}")

        rows = loop.rows(program, record, ask, folder, on_failure)
        for name in os.listdir(folder):
            if name.endswith(".numatrace"):
                shutil.rmtree(os.path.join(folder, name))
        if not failures:
            files.write(kept_at, json.dumps({"key": key, "answer": [loop.kept(one) for one in rows]}))
        return rows, failures

    def loops(self, programs):
        """All rows, and what failed."""
        rows, failures = [], []
        for program in programs:
            begun = time.monotonic()
            try:
                found, failed = self.loop(program)
                rows += found
                failures += failed
            except OutOfTime:
                self.pending.append(f"closed loop of {program}")
                continue
            except (Failed, OSError, ValueError, KeyError, TypeError) as error:
                failures.append(f"{program}: {error}")
            self.say(f"closed loop of {program}: {time.monotonic() - begun:.0f} s")
        for failure in failures:
            self.say(f"experiments: {failure}")
        return rows, failures

    def say(self, text):
        with self.said:
            print(text, file=sys.stderr, flush=True)

    @staticmethod
    def kept(path, key):
        """The last run's answer, if nothing has changed since."""
        try:
            with open(path, encoding="utf-8") as file:
                kept = json.load(file)
            return kept["answer"] if kept["key"] == key else None
        except (OSError, ValueError, KeyError):
            return None  # Absent, or from another version: made anew.

    def predict(self, ask):
        """The answer of one `whatif`."""
        recorded = self.record(ask, ask.machine)
        trace = self.trace(ask, ask.machine)
        sets = [part for one in ask.sets for part in ("--set", one)]
        dynamic = ["--dynamic-work"] if ask.program in plan.DYNAMIC else []
        return self.answer(f"predicted/{ask.label}", trace, ["whatif", trace, "--json", *dynamic, *sets], priced, recorded)

    def predictions(self, asks):
        """Answers by what was asked, and what failed."""
        answers, failures = {}, []
        for number, ask in enumerate(asks, 1):
            self.place = f"[{number} of {len(asks)}] "
            try:
                answers[ask] = self.predict(ask)
            except OutOfTime:
                self.pending.append(f"predicted/{ask.label}")
            except (Failed, OSError) as error:
                failures += [str(error)] * (str(error) not in failures)
        self.place = ""
        for failure in failures:
            self.say(f"experiments: {failure}")
        return answers, failures

    def simulate(self, job, recorded=None):
        """The answer of one simulation, without its series over time."""
        source = job.description or self.trace(job, job.recorded_on)
        return self.answer(f"simulated/{job.label}", source, ["simulate", source, *job.options, "--json", "--quiet"], trimmed, recorded)

    def answer(self, name, source, arguments, reduced, recorded=None):
        """What is kept of what a command says about `source`; from the last run if neither that nor the command nor the binary has changed since.
        `recorded`: what the recording depended on."""
        path = os.path.join(self.out, f"{name}.json")
        input_ = os.path.join(source, "meta.json") if os.path.isdir(source) else source
        key = {"binary": self.binary_hash, "arguments": arguments, "input": files.hash_of(input_), "recorded": recorded}
        answer = self.kept(path, key)
        if answer is not None:
            return answer
        begun = time.monotonic()
        printed = self.timed(name, [self.numapilot, *arguments])
        try:
            answer = reduced(json.loads(printed))
        except Failed as error:
            raise Failed(f"{name}: {error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise Failed(f"{name}: not an answer of `numapilot {arguments[0]} --json`: {error!r}") from error
        files.write(path, json.dumps({"key": key, "answer": answer}))
        self.say(f"{self.place}{name}: {time.monotonic() - begun:.0f} s")
        return answer

    def results(self, jobs):
        """Answers by label, and what failed: one failure costs its own rows only."""
        answers, failures = {}, []
        ready = []
        for job in jobs:
            try:
                ready.append((job, self.record(job, job.recorded_on) if job.program else None))
            except OutOfTime:
                self.pending.append(f"simulated/{job.label}")
            except (Failed, OSError) as error:
                # Several jobs may be of one recording.
                failures += [str(error)] * (str(error) not in failures)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            futures = {pool.submit(self.simulate, *one): one[0] for one in ready}
            for future in concurrent.futures.as_completed(futures):
                try:
                    answers[futures[future].label] = future.result()
                except OutOfTime:
                    self.pending.append(f"simulated/{futures[future].label}")
                except (Failed, OSError) as error:
                    failures.append(str(error))
                self.say(f"{len(answers)} of {len(jobs)}")
        for failure in failures:
            self.say(f"experiments: {failure}")
        return answers, failures


def priced(answer):
    """Only the price: of the processor time, where sleeps decide how long the run is (`uncertainty` is of that then), else of the run time."""
    told, work = answer["uncertainty"], answer.get("work_gain")
    found = {part: answer[part] for part in ("gain", "gain_low", "gain_high")}
    if work:
        found = {"of": plan.PROCESSOR_TIME, "gain": work["value"], "gain_low": work["low"], "gain_high": work["high"]}
    # JSON has no infinity: an end of an interval that is none is null.
    if None in (*found.values(), told["median"], *told["likely"]):
        raise Failed("the model did not converge, so that the interval of the gain has no end")
    return {**found, "uncertainty": told}


def trimmed(answer):
    """Without what is long and of no use here."""
    for one in answer["runs"]:
        for long in ("series", "labels", "threads"):
            one.pop(long, None)
    return answer
