"""What the authors of the published gains may have run: for each of their programs a mixture of configurations, each with a weight, a reason and its source.
Pure.

The papers name programs and machines; inputs and options they mostly do not. A prediction of a published gain is therefore the mixture of the predictions of
all configurations, weighted as here (figures.mixture).

When this was decided, and what was known: on 2026-11-29, from what the papers say and from the programs' own documentation, build files and scripts, before
any of these configurations was recorded or predicted. It was not decided blindly: the published gains were known, and so was which predictions of the method
before (one input at -O2, then three inputs) had missed them. So nothing here is a judgement of one program. These rules hold for all of them, and a test
holds the list to them:

* A choice is in the mixture only if a source names it: a paper, or the program's documentation, build files, defaults or run scripts. What would explain a
  miss and is named nowhere is not (a build of streamcluster without optimisation, for one).
* A choice that its source gives for such runs (on real machines, or to repeat published results) weighs RECOMMENDED, any other that a source names POSSIBLE.
* Where no source says anything, the choices are an estimate by one rule: this project's own input, a quarter of it and four times as much, with equal
  weights.
* Choices of different kinds (input, build) are independent: weights multiply.
* Nobody changes a weight or a choice because of a result. A new source may; then everything is predicted anew, and the change log names the source. Tables
  show `digest()`, so that figures of different mixtures are told apart.

What has one choice, and so is not in the lists:

* Threads: as many as the machine has cores, 16. OpenMP's default, MOSBENCH's largest `cores`, and what its Apache starts processes for. PARSEC's `-n` has the
  default 1 and ALPBench's NUM_THREADS has none; but MemProf puts threads on one node where that leaves no core idle, and did not, so there were more of them
  than a node has cores.
* Placement of threads: with a thread on every core, all are alike but for which thread is where. Moves of threads by the kernel are not modelled.
* Baseline: Linux's default, first touch. Both papers give gains over it.
* Large pages: Carrefour places pages of 4 KiB only. Whether MemProf's kernel had transparent large pages is not known; the simulated machine has none, and so
  no prediction holds what they would change.
* Builds of Psearchy (MOSBENCH: -O2) and of Apache and PHP (configure: -g -O2): as this project builds. Compilers of 2012 are not to be had; what they make of
  the same code is in the interval of each configuration, as the program's own work.
"""

import hashlib
from dataclasses import dataclass

DECIDED = "2026-11-29"
RECOMMENDED, POSSIBLE = 3, 1
# As far as the input of a run may be from this project's own, up and down, where nobody says anything.
INPUT_FACTOR = 4


@dataclass(frozen=True)
class Choice:
    """One possible value of what the authors had to choose."""

    name: str
    weight: int
    why: str
    # Of our program, after its usual ones.
    arguments: tuple = ()
    # OPTIMISE of workloads/Makefile; empty: as it is there.
    build: str = ""


@dataclass(frozen=True)
class Configuration:
    """One choice of each kind. Weights of a program's configurations add up to 1."""

    name: str
    weight: float
    arguments: tuple = ()
    build: str = ""


ONLY = Configuration("as simulated", 1.0)


def unknown_input(option, amount):
    """Choices of an input of which no source says anything: `amount` of the option that says how much there is to do, a quarter, and four times as much."""
    why = "no source; an estimate by the rule for inputs"
    others = [Choice(f"{option[2:]} {other}", POSSIBLE, why, (option, str(other))) for other in (amount // INPUT_FACTOR, amount * INPUT_FACTOR)]
    return [Choice(f"{option[2:]} {amount}", POSSIBLE, why), *others]


CENTRES = ("--kmin", "10", "--kmax", "20", "--candidates", "70")
STREAMCLUSTER = (
    [
        Choice(
            "native",
            RECOMMENDED,
            "PARSEC's input for real machines: 10 20 128 1000000 200000 5000; two of its five chunks, which are alike",
            ("--chunk", "200000", "--chunks", "2", *CENTRES),
        ),
        Choice(
            "simlarge",
            POSSIBLE,
            "PARSEC's largest input for simulators: 10 20 128 16384 16384 1000",
            ("--chunk", "16384", "--chunks", "1", *CENTRES),
        ),
    ],
    # -fprefetch-loop-arrays, which is also there, is left out: K10's own prefetchers do the same, and the simulated machine has these.
    [Choice("-O3 -funroll-loops", RECOMMENDED, "config/gcc.bldconf of PARSEC 2.1", build="-O3 -g -funroll-loops")],
)
# The original's sums are one chain, which no compiler may reorder; our two sums side by side are made into SSE2's vectors of two, if nothing forbids it.
NO_VECTORS = "-O3 -g -fno-tree-vectorize -fno-tree-slp-vectorize"
# Alike: the copy of the Makefile that could be read is of a port to machines without SSE2, so that its -DSIMD=0 does not tell the default.
FACEREC_BUILDS = [
    Choice("-O3", POSSIBLE, "Makefile of ALPBench's Face_Rec, with -DSIMD=0", build=NO_VECTORS),
    Choice("-O3, vectors", POSSIBLE, "the same with SSE2, which ALPBench (IISWC 2005) offers beside it", build="-O3 -g"),
]
# Threads and not processes, which pedsort has too: MemProf tells of objects of each thread.
PSEARCHY = (
    [
        Choice(
            "1024 MB",
            RECOMMENDED,
            "-m 1024 in MOSBENCH's config.py and README: a quarter for each structure, of it 16 MiB for each thread; text: Linux's source, 368 MB (OSDI 2010)",
            ("--documents", "5600", "--slots", "262144", "--blocks", "131072"),
        ),
        Choice(
            "256 MB",
            POSSIBLE,
            "pedsort's default, likewise: 4 MiB for each thread; the same text",
            ("--documents", "5600", "--slots", "65536", "--blocks", "32768"),
        ),
    ],
)
WEBSERVER = (
    [
        Choice("4 processes of 4", POSSIBLE, "MemProf pins each process to a node: the fewest that leave no node idle"),
        Choice(
            "6 processes of 25",
            POSSIBLE,
            "Apache 2.2's httpd-mpm.conf, worker: ThreadsPerChild 25, MaxClients 150",
            ("--processes", "6", "--threads", "150"),
        ),
    ],
    unknown_input("--requests", 40),
)
# By program and paper.
MIXTURES = {
    ("streamcluster", "carrefour"): STREAMCLUSTER,
    ("streamcluster", "memprof"): STREAMCLUSTER,
    ("facerec", "carrefour"): (unknown_input("--probes", 8000), FACEREC_BUILDS),
    ("facerec", "memprof"): (unknown_input("--probes", 1000), FACEREC_BUILDS),
    ("psearchy", "memprof"): PSEARCHY,
    ("webserver", "memprof"): WEBSERVER,
}


def configurations(program, source):
    """All that may have been run for a figure of this paper, the most likely first."""
    made = [ONLY]
    for choices in MIXTURES.get((program, source), ()):
        total = sum(choice.weight for choice in choices)
        made = [joined(one, choice, total) for one in made for choice in choices]
    return sorted(made, key=lambda one: -one.weight)


def joined(one, choice, total):
    name = choice.name if one.name == ONLY.name else f"{one.name}, {choice.name}"
    return Configuration(name, one.weight * choice.weight / total, one.arguments + choice.arguments, one.build or choice.build)


def digest():
    """Of all mixtures: figures with another one are of another method."""
    told = repr([(key, configurations(*key)) for key in sorted(MIXTURES)])
    return hashlib.sha256(told.encode()).hexdigest()[:12]
