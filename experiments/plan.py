"""What is run: programs, variants, policies, machines; and the results by what they answer. No files, no processes."""

import os
from dataclasses import dataclass

import authors
from figures import Run

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BASE = "first-touch"
OPTIMUM = "optimum"
POLICIES = [BASE, "interleave", "kernel-balancing", "carrefour", "carrefour-as-coded", "carrefour-lp", "pilot"]
MACHINE = "opteron-8385"
MEMPROF_MACHINE = "memprof-a"
SYNTHETIC_MACHINES = [MACHINE, "memprof-c", "x1-32xlarge", "epyc-2s-nps4"]
# Each program in the variant whose placement is that of the published program.
PROGRAMS = {
    "streamcluster": "naive",
    "facerec": "naive",
    "psearchy": "naive",
    "pca": "naive",
    "is": "serial",
    "cg": "parallel",
    "mg": "parallel",
    "bt": "parallel",
    "swaptions": "naive",
    "phases": "naive",
    "bfs": "naive",
    "webserver": "naive",
}
# Published gains are of whole runs: predictions are of runs without the checks that only these programs make. IS runs at the size of class C of the NAS
# benchmarks: 2^27 keys, ten rankings. FaceRec has two sizes on purpose, because two papers ran two programs: Carrefour's FaceRecLong (on MACHINE) is FaceRec
# on more images, MemProf's (on MEMPROF_MACHINE) is FaceRec itself, our default size. The matrix is the same, 15 MB; what differs is how many images are
# compared with it.
WHOLE = ("--no-verify",)
SIZES = {("facerec", MACHINE): ("--size", "medium"), ("is", MACHINE): ("--keys-log2", "27", "--range-log2", "23")}
# Programs whose threads take the next piece of work when they are free (in their sources: a shared counter or list, or requests that come). Whether the
# originals do is not known of all of them; predictions' intervals hold both.
DYNAMIC = ("facerec", "psearchy", "pca", "bfs", "swaptions", "webserver")
# Long enough as recorded. Ten rankings are all that IS does: repeated, they would give a policy that decides every second time that it does not have.
ONCE = ("is",)
# MemProf's case studies: the variant that does what its authors did.
FIXED = {"streamcluster": "interleaved", "facerec": "replicated", "psearchy": "local", "webserver": "pinned"}
SYNTHETIC = os.path.join(ROOT, "workloads", "synthetic")
# What a prediction is of where it is not of the run time: the program mostly sleeps.
PROCESSOR_TIME = "processor time"
# Machines drawn from the ranges of MACHINE's model, which stand for what is not known of it: least and most of 19 values hold 90 %.
DRAWN = 19


@dataclass(frozen=True)
class Job:
    """One `numapilot simulate`: of a recording (program and variant) or of a description (a TOML file)."""

    label: str
    options: tuple
    program: str = ""
    variant: str = ""
    description: str = ""
    arguments: tuple = ()
    # The machine of the recording.
    recorded_on: str = MACHINE
    # OPTIMISE of the program's build; empty: as workloads/Makefile has it.
    build: str = ""


@dataclass(frozen=True)
class Ask:
    """One `numapilot whatif`: of a recording of a program and variant, with these arguments, on a machine. `build`: as of Job."""

    program: str
    variant: str
    machine: str
    sets: tuple
    arguments: tuple = WHOLE
    build: str = ""
    # Of what the authors may have run: which of them this is, and its share.
    configuration: str = authors.ONLY.name
    weight: float = 1.0

    @property
    def label(self):
        of_input = "-".join(word.lstrip("-") for word in self.arguments) + of_build(self.build)
        return "/".join([self.machine, self.program, of_input, " ".join(self.sets).replace("*", "all")])


INTERLEAVE = ("*=interleave",)


def of_build(build):
    """How names of files tell a program's build; nothing for the usual one."""
    return "".join(build.split())


def asked(kind, entry):
    """What published statements of a kind can be predicted: what is asked (of each configuration that may have been), what it gains. A policy that decides
    while programs run cannot."""
    if kind == "fix":
        return [(asks_of(kind, entry, tuple(entry["set"])), entry["gain"]), (asks_of(kind, entry, INTERLEAVE), entry["interleave"])]
    if entry["policy"] != "interleave" or entry.get("metric", "gain") != "gain":
        return []
    return [(asks_of(kind, entry, INTERLEAVE), entry.get("value", entry.get("sign")))]


def arguments_of(program, machine):
    """Of a program whose runs are compared with published ones: simulations and predictions of signs are of the same recording."""
    return WHOLE + SIZES.get((program, machine), ())


def asks_of(kind, entry, sets):
    program, machine = entry["program"], MEMPROF_MACHINE if kind == "fix" else MACHINE
    usual = arguments_of(program, machine)
    # A sign is of one configuration: the simulations'.
    made = [authors.ONLY] if kind == "sign" else authors.configurations(program, entry["source"])
    return [Ask(program, PROGRAMS[program], machine, sets, usual + one.arguments, one.build, one.name, one.weight) for one in made]


def asks(programs, published):
    """Everything that is predicted."""
    entries = [(kind, entry) for kind in ("figure", "sign", "fix") for entry in published[kind] if entry["program"] in programs]
    return [ask for kind, entry in entries for of_figure, _ in asked(kind, entry) for ask in of_figure]


def synthetic_names():
    return sorted(name[:-5] for name in os.listdir(SYNTHETIC) if name.endswith(".toml"))


def jobs(programs, policies, seconds, repeat, with_synthetic):
    """Short ones first, so that there is something to look at early."""
    listed = ",".join(policies)
    wanted = []
    if with_synthetic:
        for machine in SYNTHETIC_MACHINES:
            for name in synthetic_names():
                path = os.path.join(SYNTHETIC, f"{name}.toml")
                wanted.append(Job(f"synthetic/{machine}/{name}", ("--policy", listed, "--machine", machine), description=path))
    for program in programs:
        if program in FIXED:
            # The same work before and after: as often repeated, not for as long.
            options = ("--machine", MEMPROF_MACHINE, "--repeat", str(repeat), "--policy")
            of_paper = {"program": program, "arguments": arguments_of(program, MEMPROF_MACHINE), "recorded_on": MEMPROF_MACHINE}
            wanted.append(Job(f"memprof/{program}/before", (*options, f"{BASE},interleave"), variant=PROGRAMS[program], **of_paper))
            wanted.append(Job(f"memprof/{program}/after", (*options, BASE), variant=FIXED[program], **of_paper))
    for program in programs:
        repeated = () if program in ONCE else ("--for", f"{seconds:g}")
        options = ("--machine", MACHINE, *repeated, "--policy", listed)
        wanted.append(Job(f"program/{program}", options, program, PROGRAMS[program], arguments=arguments_of(program, MACHINE)))
    return wanted


def drawn_jobs(programs, published, seconds, models):
    """What policies do that decide while programs run, on machines drawn from the model's ranges (`models`: files): of programs of which that is published."""
    decided = {(entry["program"], entry["policy"]) for kind in ("figure", "sign") for entry in published[kind]}
    wanted = []
    for program in programs:
        if not any((program, policy) in decided for policy in POLICIES if policy not in (BASE, "interleave")):
            continue
        repeated = () if program in ONCE else ("--for", f"{seconds:g}")
        for index, model in enumerate(models):
            options = ("--machine", model, *repeated, "--policy", ",".join([BASE, "interleave", "carrefour", "carrefour-as-coded"]))
            wanted.append(Job(f"drawn/{program}/{index}", options, program, PROGRAMS[program], arguments=arguments_of(program, MACHINE)))
    return wanted


class Study:
    """All results, by what they answer. `results`: the answers of `simulate --json` by label; `predicted`: those of `whatif --json`."""

    def __init__(self, results, policies, seconds, repeat, predicted=None, asked=(), looped=""):
        self.predicted = predicted or {}
        # What a run of the closed loop wrote.
        self.loop = looped
        # Programs of which predictions were to be made.
        self.asked = asked
        self.policies, self.seconds, self.repeat = policies, seconds, repeat
        runs = {label: {run["policy"]: Run(run) for run in answer["runs"]} for label, answer in results.items()}
        self.programs = {name: runs[f"program/{name}"] for name in PROGRAMS if f"program/{name}" in runs}
        self.fixes = {
            name: (runs[f"memprof/{name}/before"], runs[f"memprof/{name}/after"])
            for name in FIXED
            if f"memprof/{name}/before" in runs and f"memprof/{name}/after" in runs
        }
        self.synthetic = {machine: {} for machine in SYNTHETIC_MACHINES}
        # By program: runs by policy, on each machine that was drawn.
        self.drawn = {}
        for label in sorted(runs):
            kind, *rest = label.split("/")
            if kind == "synthetic":
                self.synthetic[rest[0]][rest[1]] = runs[label]
            elif kind == "drawn":
                self.drawn.setdefault(rest[0], []).append(runs[label])
