"""Records and simulates, with everything kept in one folder. The only file here that starts processes."""

import concurrent.futures
import hashlib
import json
import os
import shutil
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


class Failed(Exception):
    """A command that failed; says which, and what it said."""


def run(command, cwd=None):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, check=False)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: failed with {done.returncode}: {done.stderr.strip()[-2000:]}")
    return done.stdout


class Lab:
    """One binary, one folder of instrumented programs (the same without call-outs in a folder `native` beside it), one folder of results."""

    def __init__(self, numapilot, workloads, out):
        self.numapilot, self.workloads, self.out = map(os.path.abspath, (numapilot, workloads, out))
        if not os.access(self.numapilot, os.X_OK):
            sys.exit(f"experiments: {numapilot}: no such program; `make build` makes it")
        self.binary_hash = files.hash_of(self.numapilot)
        self.said = threading.Lock()

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
        name = "-".join([job.program, job.variant, *(word.lstrip("-") for word in job.arguments)])
        return os.path.join(self.out, "traces", f"{name}{of_machine}.numatrace")

    def record(self, job, machine=plan.MACHINE):
        """Once; the program verifies itself unless told not to. Recordings run one at a time, as they use all cores."""
        trace = self.trace(job, machine)
        if os.path.exists(os.path.join(trace, "meta.json")):
            return
        program = os.path.join(self.workloads, job.program)
        if not os.access(program, os.X_OK):
            raise Failed(f"{program}: no such program; `make workloads` makes it")
        os.makedirs(os.path.dirname(trace), exist_ok=True)
        unfinished = trace.replace(".numatrace", "-unfinished.numatrace")
        shutil.rmtree(unfinished, ignore_errors=True)
        options = ["--quiet", "--machine", machine, "--rate", RATE_HZ, "-o", unfinished]
        native = os.path.join(os.path.dirname(self.workloads), "native", job.program)
        if job.arguments and os.access(native, os.X_OK):
            options += ["--native", native]
        begun = time.monotonic()
        run([self.numapilot, "record", *options, "--", program, "--variant", job.variant, *job.arguments], cwd=self.out)
        os.replace(unfinished, trace)
        self.say(f"recorded {job.program}, {job.variant}, on {machine}: {time.monotonic() - begun:.0f} s")

    def loop(self, program):
        """Predictions of a recording of the program beside what recordings with each change find."""
        variant = plan.PROGRAMS[program]
        folder = os.path.join(self.out, "loop", program)
        kept_at = os.path.join(folder, "rows.json")
        key = {"binary": self.binary_hash, "program": files.hash_of(os.path.join(self.workloads, program)), "runs": loop.RUNS}
        kept = self.kept(kept_at, key)
        if kept is not None:
            return [loop.Row(**one) for one in kept]
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)

        def ask(*words):
            return run([self.numapilot, *words], cwd=folder)

        def record(name, *options):
            command = [os.path.join(self.workloads, program), "--variant", variant, *plan.WHOLE]
            ask("record", "--quiet", "--machine", plan.MACHINE, "--rate", RATE_HZ, "-o", os.path.join(folder, name), *options, "--", *command)
            return os.path.join(folder, name)

        rows = loop.rows(program, record, ask, folder)
        for name in os.listdir(folder):
            if name.endswith(".numatrace"):
                shutil.rmtree(os.path.join(folder, name))
        files.write(kept_at, json.dumps({"key": key, "answer": [loop.kept(one) for one in rows]}))
        return rows

    def loops(self, programs):
        """All rows, and what failed."""
        rows, failures = [], []
        for program in programs:
            begun = time.monotonic()
            try:
                rows += self.loop(program)
            except (Failed, OSError, ValueError, KeyError) as error:
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
        self.record(ask, ask.machine)
        trace = self.trace(ask, ask.machine)
        sets = [part for one in ask.sets for part in ("--set", one)]
        dynamic = ["--dynamic-work"] if ask.program in plan.DYNAMIC else []
        return self.answer(f"predicted/{ask.label}", trace, ["whatif", trace, "--json", *dynamic, *sets], priced)

    def predictions(self, asks):
        """Answers by what was asked, and what failed."""
        answers, failures = {}, []
        for ask in asks:
            try:
                answers[ask] = self.predict(ask)
            except Failed as error:
                failures.append(str(error))
        for failure in failures:
            self.say(f"experiments: {failure}")
        return answers, failures

    def simulate(self, job):
        """The answer of one simulation, without its series over time."""
        source = job.description or self.trace(job, job.recorded_on)
        return self.answer(f"simulated/{job.label}", source, ["simulate", source, *job.options, "--json", "--quiet"], trimmed)

    def answer(self, name, source, arguments, reduced):
        """What is kept of what a command says about `source`; from the last run if neither that nor the command nor the binary has changed since."""
        path = os.path.join(self.out, f"{name}.json")
        input_ = os.path.join(source, "meta.json") if os.path.isdir(source) else source
        key = {"binary": self.binary_hash, "arguments": arguments, "input": files.hash_of(input_)}
        answer = self.kept(path, key)
        if answer is not None:
            return answer
        begun = time.monotonic()
        printed = run([self.numapilot, *arguments])
        try:
            answer = reduced(json.loads(printed))
        except (ValueError, KeyError) as error:
            raise Failed(f"{name}: not an answer of `numapilot {arguments[0]} --json`: {error!r}") from error
        files.write(path, json.dumps({"key": key, "answer": answer}))
        self.say(f"{name}: {time.monotonic() - begun:.0f} s")
        return answer

    def results(self, jobs):
        """Answers by label, and what failed: one failure costs its own rows only."""
        answers, failures = {}, []
        ready = []
        for job in jobs:
            try:
                if job.program:
                    self.record(job, job.recorded_on)
                ready.append(job)
            except Failed as error:
                failures.append(str(error))
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            futures = {pool.submit(self.simulate, job): job for job in ready}
            for future in concurrent.futures.as_completed(futures):
                try:
                    answers[futures[future].label] = future.result()
                except Failed as error:
                    failures.append(str(error))
                self.say(f"{len(answers)} of {len(jobs)}")
        for failure in failures:
            self.say(f"experiments: {failure}")
        return answers, failures


def priced(answer):
    """Only the price."""
    return {part: answer[part] for part in ("gain", "gain_low", "gain_high", "uncertainty")}


def trimmed(answer):
    """Without what is long and of no use here."""
    for one in answer["runs"]:
        for long in ("series", "labels", "threads"):
            one.pop(long, None)
    return answer
