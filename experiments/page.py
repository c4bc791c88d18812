"""The page of results, in Markdown. Pure: everything it says comes from the study, the published figures and their comparison."""

import authors
import figures
import judge
import plan

CAUSES = """\
## Where published gains do not agree with each other

Some rows cannot all be inside, whatever is predicted; `cargo test -p numapilot-traffic --test all published:: -- --nocapture` prints the model's figures.

* `streamcluster`, everything interleaved: Carrefour has +100 %, MemProf +33 %, on machines that differ by 0.2 GHz. No figure of a machine that is open makes
  that difference; the program's own work does. Sixteen threads that meet at barriers and read lines, first all from one node, gain +140 % in the
  model if a line of 16 dimensions takes each of them 64 cycles besides, as PARSEC's loop and ours do where one dependent addition of four cycles is made per
  dimension; +100 % at 154 cycles, and +33 % at 300. A build without optimisation may take as long (no documentation of PARSEC has one, so it is not among
  what the authors may have run), and points that in part stay in caches do the same; which input and which options MemProf used is not published.
* `facerec`: of the run time, MemProf's two fixes save 29 % (copies) and 13 % (everything interleaved), so interleaving saves 0.45 of what copies do;
  Carrefour's two figures give at most 0.69. A serial part, or another number of images, shortens both alike and leaves that ratio. In the model it is
  0.75 where every thread keeps its images, and 0.41 to 0.51 where whichever thread is free takes the next one. Our program does the latter;
  which of the two the original did is not known here, so the intervals of such programs hold both (`whatif --dynamic-work`: `facerec`, `psearchy`, `pca`,
  `swaptions`, `webserver`).
"""

AUTHORS = """\
## What the authors may have run

Papers name programs and machines. Inputs, options and builds they mostly do not name, and a gain depends on them as it does on the machine. So a gain
with a figure is predicted for each configuration that its authors may have run, and the prediction is the mixture of these.

* **Where the list comes from.** `experiments/authors.py` has every choice with its weight, the reason and the source: the paper, or the program's
  documentation, build files, defaults and run scripts. It was decided by rules before any of these configurations was predicted. It was not decided
  blindly: the published gains were known, and so were the predictions of an earlier method. So the rules are the same for all programs: a choice is there
  only if a source names it; what its source gives for such runs counts three times as much as another choice that a source names; where no source says
  anything, our own input, a quarter of it and four times as much count alike; a test holds the list to the weights. A build of `streamcluster` without
  optimisation, which would explain a miss, is named nowhere and not in the list. Weights and choices are not changed after a result; tables show a digest
  of the list.
* **What differs.** `streamcluster`: PARSEC's input for real machines, and its largest for simulators, in PARSEC's own build. `facerec`: the number of
  images, and ALPBench's build with and without vectors. `psearchy`: MOSBENCH's memory for the index, and the program's default, over as much text as
  MOSBENCH indexes. `webserver`: few processes of few threads, and those of Apache's default configuration; the number of requests.
* **What does not.** As many threads as cores (then it matters little which thread is where), first touch as the baseline (both papers say so), pages of
  4 KiB (Carrefour places no others; for MemProf that is not known, and large pages are not simulated). `experiments/authors.py` says why of each.
* **The mixture.** Each configuration is recorded with its options and its build, and `whatif` predicts a distribution of its gain, of which the 2.5, 5,
  50, 95 and 97.5 % quantiles are kept. Between them it is taken as linear; beyond the outermost there is nothing, so that each of these holds the 2.5 % of
  its side. The mixture's distribution is the weighted sum of these, and the prediction its median and its 5 and 95 % quantiles. So an interval holds both:
  what is not known of the machine and the model, within a configuration, and what is not known of the run, between them. A configuration of less than 5 %
  of the weight can lie outside as a whole. If one configuration is not predicted, the gain is not.
* **What it can show.** Nine published gains with a figure, of four programs and two papers, are few, and those of one program are missed or met together:
  a share of them that lies inside is no proof of the stated 90 %. Tables therefore show widths and errors beside it, each configuration by itself with
  its weight, and not which of them holds the published gain.
"""

LOOP = """\
## Predicted, then recorded

The closed loop: what `whatif` says of a recording, and what four recordings with the change find beside four without (`compare`; both **modelled** on the
machine that is simulated, opteron-8385). A plan is the one that `report --plan` writes. The recordings' machine is known exactly, and the intervals carry
what would not be known of a real one: so they hold more than they must, and the error says more. Programs have their usual inputs and builds here.
Made by `experiments/run NUMAPILOT WORKLOADS OUT --loop`.
"""

CAVEATS = """\
## How to read it

* Nothing here was measured on a machine. Programs were recorded on one simulated machine and simulated under each policy ([simulator](simulator.md),
  [policies](policies.md)); published figures are of real machines and the original programs. Ours implement the same algorithms
  ([workloads](../workloads/README.md)) at inputs that are small enough to record within a minute or so.
* Recordings last 0.1 to 10 s of program time. A policy that decides every second needs longer, so each program's main part is repeated; its initialisation is
  not. Repeated parts access the same pages again, and what the original does once and late is missing. So a placement, once found, stays right for longer
  than in programs that go on to other pages. `is` is not repeated: its ten rankings, at class C, are all that it does.
* Simulations and predictions of a sign are of the same recording of a program (predictions of gains with a figure: of what the authors may have run),
  and of the same cores: own work and overlap as the model file and native runs say.
* Who does which piece of work is as recorded, where congestion slowed nobody down. In programs that give work to whichever thread is free (`pca`, `bfs`),
  threads near the memory would do more of it on a real machine.
* Machine parameters are facts of the machines (clocks, bandwidths, idle latencies; `models/`). Neither the model nor a policy was fitted to these results,
  and no bound is set on them: this is a report and not a test.
* `carrefour` is the algorithm as its paper has it, `carrefour-as-coded` as its released code has it. The authors measured the code. Both are compared with the
  published figures.
* The case studies are compared at equal work (main part repeated equally often), before and after the fix.
* A gain is first touch's run time over the policy's, less 1: +100 % is twice as fast. Regret is a policy's run time over the optimum's, less 1.
* `optimum` is the best static placement of pages that a search found with the whole run known beforehand, without moving threads, copying pages or splitting
  large ones ([policies](policies.md)). A policy that does those, or follows phases, can beat it: its regret is then negative. The search
  judges by the traffic model without synchronisation, so what it found can even fall behind first touch where threads wait for each other.

## Again

`make experiments` sets up, builds, records, simulates and compares; `make experiments EXPERIMENTS=--quick` repeats for 5 s in place of 15, and
`EXPERIMENTS="--quick pca is"` does only those programs; `EXPERIMENTS="--quick --drawn is"` also simulates the published policies on 19 machines drawn from
the ranges of the model, for an interval (19 times as long). What was interrupted goes on where it was; recordings and results are kept in `build/experiments`.
`experiments/run NUMAPILOT WORKLOADS OUT --predict --minutes 30` only predicts published gains, and ends after half an hour, with status 3 if there is more to
do: the same command goes on there.
"""


def percent(value, sign=True, digits=0):
    if value is None:
        return ""
    rounded = round(100 * value, digits) + 0.0
    return f"{rounded:+.{digits}f}" if sign else f"{rounded:.{digits}f}"


def first_line(text):
    """Of what failed, whatever it said."""
    return next(iter(text.strip().splitlines()), "It said nothing.")


def looped(text, binary_hash):
    """What an earlier run of the closed loop wrote, with a word where that was with another binary."""
    if not text or binary_hash[:12] in text:
        return text
    return f"**Of another build of numapilot** than the rest of this page, which is of {binary_hash[:12]}: `--loop` makes it anew.\n\n{text}"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows]) + "\n"


def comparisons(rows):
    shown, with_drawn = [], any(row.drawn for row in rows)
    for row in rows:
        error = "" if row.error is None else f"{percent(row.error, digits=1)}"
        ours = "not known" if row.ours is None else f"{percent(row.ours, row.what == 'gain', 1)} %"
        source = row.source + (f" ({row.note})" if row.note else "")
        drawn = [f"{percent(row.drawn[0], digits=1)} to {percent(row.drawn[1], digits=1)}" if row.drawn else ""] * with_drawn
        cells = [f"`{row.program}`", row.policy, row.what, row.published, ours, *drawn, error]
        shown.append([*cells, "yes" if row.agrees else "**no**", source])
    of_drawn = [f"of {plan.DRAWN} machines"] * with_drawn
    return table(["program", "policy or fix", "what", "published", "ours (simulated)", *of_drawn, "error, points", "sign agrees", "source"], shown)


def predictions_part(rows):
    """Published gains beside predictions with their intervals, and how good these are over all."""
    shown = []
    for row in rows:
        published = row.published if isinstance(row.published, str) else f"{percent(row.published, digits=1)} %"
        inside = {None: "", True: "yes", False: "**no**"}[row.inside]
        interval = f"{percent(row.low, digits=1)} to {percent(row.high, digits=1)}"
        cells = [f"`{row.program}`", row.what, row.machine, published, percent(row.median, digits=1), interval, percent(row.width, False, 1), inside]
        shown.append([*cells, "yes" if row.sign_agrees else "**no**", row.source, row.comes_from])
    head = ["program", "fix", "machine", "published", "median, %", "90 % interval", "width", "inside", "sign agrees", "source", "the width comes from"]
    known = [row for row in rows if row.inside is not None]
    lines = [table(head, shown)]
    if known:
        inside = sum(row.inside for row in known)
        error = sum(abs(row.error) for row in known) / len(known)
        width = sum(row.width for row in known) / len(known)
        signs = sum(row.sign_agrees for row in rows)
        lines.append(
            f"{inside} of {len(known)} published gains ({100 * inside / len(known):.0f} %) lie inside their 90 % interval; the medians' mean absolute\n"
            f"error is {100 * error:.1f} points, the intervals' mean width {100 * width:.1f} points (a wide net catches all); {signs} of {len(rows)} signs\n"
            "are right.\n"
        )
    return lines


def configurations_part(rows):
    """What the predictions of figures are made of. Not which of the parts hold the published gain: nothing may be chosen by that."""
    shown = []
    for row in rows:
        for part in row.parts if len(row.parts) > 1 else ():
            interval = f"{percent(part.low, digits=1)} to {percent(part.high, digits=1)}"
            cells = [f"`{row.program}`", row.what, row.machine, part.name, f"{percent(part.weight, False)} %"]
            shown.append([*cells, percent(part.median, digits=1), interval])
    if not shown:
        return []
    programs = {row.program for row in rows if len(row.parts) > 1}
    # Papers that ran the same have one line.
    said = {(program, one): None for (program, _), kinds in authors.MIXTURES.items() if program in programs for choices in kinds for one in choices}
    reasons = [[f"`{program}`", one.name, str(one.weight), " ".join([*one.arguments, one.build]).strip(), one.why] for program, one in said]
    return [
        f"These are mixtures of what the authors may have run, as decided on {authors.DECIDED} by rules, from papers and programs' documentation, before any\n"
        "of it was predicted; the published gains and the predictions of an earlier method were known then. Rules and sources: `experiments/authors.py`,\n"
        f"mixture {authors.digest()}.\n",
        table(["program", "choice", "weight among its kind", "options and build of ours", "reason"], reasons),
        "Each by itself, with its weight:\n",
        table(["program", "fix", "machine", "configuration", "weight", "median, %", "90 % interval"], shown),
    ]


PREDICTED = """\
## Published gains, predicted

What `whatif` says of recordings of the programs as they were (whole runs without the checks that only our programs make, anchored by runs
without call-outs: `record --native`), on the machine that is named: median and 90 % interval of the ensemble, which carries what is not known
of machines and programs ([patterns](patterns.md#interval)). **Predicted**; a policy that decides while programs run is not among these.
What the authors ran is mostly not published: a gain with a figure is predicted for each configuration that they may have run, and the interval is
that of all of them together, each with its weight. So is what a paper gives beside a figure of the same program (`webserver`, everything
interleaved); any other sign is predicted for the program as it is simulated.
"""


def predicted_part(study, published):
    """Everything about predictions of published gains."""
    rows, waiting = judge.predictions(study, published), judge.waiting(study, published)
    if not rows and not waiting:
        return []
    parts = [PREDICTED, *(predictions_part(rows) if rows else []), *configurations_part(rows)]
    if waiting:
        parts.append("Not predicted yet, and in none of the figures above:\n\n" + "\n".join(f"* {line}." for line in waiting) + "\n")
    looped = [LOOP, study.loop] if study.loop else []
    return [AUTHORS, *parts, CAUSES, *looped]


def gains_table(runs, policies):
    """Gains of every policy, with the best one in bold."""
    others = [policy for policy in policies if policy != plan.BASE]
    rows = []
    for program, by in runs.items():
        if plan.BASE not in by:
            continue
        gains = {policy: by[policy].gain_over(by[plan.BASE]) for policy in others if policy in by}
        contest = [gain for policy, gain in gains.items() if policy != plan.OPTIMUM]
        best = max(contest, default=None)
        cells = []
        for policy in others:
            cell = percent(gains.get(policy), digits=1)
            is_best = best is not None and best > 0 and policy != plan.OPTIMUM and gains.get(policy) == best
            cells.append(f"**{cell}**" if is_best else cell)
        rows.append([f"`{program}`", f"{by[plan.BASE].seconds:.1f}", *cells])
    return table(["gain, %", "first touch, s", *others], rows)


def summary_table(runs, policies):
    summed = figures.summary(runs, policies, plan.BASE, plan.OPTIMUM)
    with_regret = any(row["regret"] is not None for row in summed)
    rows = []
    for row in summed:
        worst, whose = row["worst"]
        cells = [row["policy"], percent(row["mean"], digits=1), "" if row["policy"] == plan.BASE else f"{percent(worst, digits=1)} (`{whose}`)"]
        if with_regret:
            cells += [percent(row["regret"], digits=1), f"{percent(row['most'][0], digits=1)} (`{row['most'][1]}`)" if row["most"] else ""]
        rows.append(cells)
    return table(["policy", "geometric mean of gains, %", "worst, %"] + ["mean regret, %", "greatest regret, %"] * with_regret, rows)


def cycles(run):
    """Mean latency of a run's memory accesses; `-` where it has none."""
    return "-" if run.latency_cycles is None else f"{run.latency_cycles:.0f}"


def metrics_table(study):
    """Local share, imbalance and latency under each policy, in one cell."""
    rows = []
    for program, by in study.programs.items():
        cells = []
        for policy in study.policies:
            run = by.get(policy)
            cells.append("" if run is None else " / ".join([*(percent(one, False) or "-" for one in (run.local, run.imbalance)), cycles(run)]))
        rows.append([f"`{program}`", *cells])
    return table(["local, % / imbalance, % / latency, cycles", *study.policies], rows)


def order_lines(study, published):
    lines = []
    for program, theirs, ours, agrees in judge.orders(study, published):
        tail = "as published" if agrees else f"published: {' < '.join(theirs)}"
        lines.append(f"* `{program}`: {' < '.join(ours)}; {tail}.")
    for policy, bound, gain, program, holds in judge.bounds(study, published):
        verdict = "holds" if holds else "**does not hold**"
        lines.append(f"* {policy}, never more than {-100 * bound:.0f} % worse than first touch: {verdict} (worst {percent(gain, digits=1)} %, `{program}`).")
    return lines


def notes(study):
    """Where the replay is doubtful: the simulator's own words."""
    of_base = {program: by[plan.BASE].notes for program, by in study.programs.items() if plan.BASE in by}
    return [f"* `{program}`: {' '.join(said)}" for program, said in of_base.items() if said]


def where_behind(study):
    """Where ours is not the best, or worse than doing nothing: first what matters most."""
    every = [(plan.MACHINE, study.programs), *((machine, runs) for machine, runs in study.synthetic.items())]
    found = []
    for machine, runs in every:
        for program, by in runs.items():
            rivals = {policy: run for policy, run in by.items() if policy not in ("pilot", plan.OPTIMUM)}
            if "pilot" not in by or plan.BASE not in rivals:
                continue
            best = max(rivals, key=lambda policy: rivals[policy].speed)
            gap = rivals[best].speed / by["pilot"].speed - 1
            if gap > 0.005:
                gain, theirs = by["pilot"].gain_over(by[plan.BASE]), rivals[best].gain_over(by[plan.BASE])
                found.append((gap, f"* `{program}` on {machine}: pilot {percent(gain, digits=1)} %, {best} {percent(theirs, digits=1)} %."))
    return [line for _, line in sorted(found, reverse=True)]


def page(study, published, failures, binary_hash, pictures):
    """The whole page. `pictures`: paths of the plots by name, relative to the page."""

    def picture(name):
        return [f"![{name}]({pictures[name]})\n"] if name in pictures else []

    parts = [
        "# Published results, simulated\n",
        "Written by `make experiments`, which records, simulates, compares and draws anew. All figures of ours are **simulated**: each program's main part\n"
        f"repeated to {study.seconds:g} s at its recorded pace, 16 threads, seed 1; numapilot {binary_hash[:12]} (SHA-256 of the binary).\n",
    ]
    rows, fixes, policies = judge.figures_and_signs(study, published), judge.fixes(study, published), study.policies
    if rows:
        orders = "\n".join(order_lines(study, published)) + "\n"
        if any(row.drawn for row in rows):
            orders += (
                f"\n*Of {plan.DRAWN} machines*: the least and the most gain on so many machines drawn from the ranges of this one's model, which hold nine\n"
                "tenths of what it could be. What is not known of the program, and the traffic model's own error, are not in it.\n"
            )
        parts += ["## Carrefour's results\n", f"Machine `{plan.MACHINE}`.\n", comparisons(rows), "From the slowest to the fastest, and bounds:\n", orders]
    if fixes:
        heading = f"## MemProf's case studies\n\nMachine `{plan.MEMPROF_MACHINE}`; main parts repeated {study.repeat} times.\n"
        parts += [heading, *picture("case-studies"), comparisons(fixes)]
    parts += predicted_part(study, published)
    if rows or fixes:
        missed = [f"* {line}" for line in judge.missed(study, published)]
        within, far = published["unchanged"]["within"], published["missed"]
        sizes = f"{100 * far['speedup']:.0f} % of the speed-up or {100 * far['share']:.0f} points of the share"
        none = f"Where the authors say that a change has no effect, up to {100 * within:.0f} % counts as none"
        what = f"{none}; sizes are named when they are off by more than {sizes}."
        parts += [f"## What is missed\n\n{what}\n"]
        parts += ["\n".join(missed or ["Nothing."]) + "\n"]
    if study.programs:
        parts += ["## Every program under every policy\n", *picture("gains"), gains_table(study.programs, policies), summary_table(study.programs, policies)]
        parts += [*picture("imbalance"), *picture("local"), *picture("latency"), metrics_table(study)]
    for machine, runs in study.synthetic.items():
        if runs:
            heading = f"## Synthetic workloads on `{machine}`\n"
            parts += [heading, *picture(f"synthetic-{machine}"), gains_table(runs, policies), summary_table(runs, policies)]
    if noted := notes(study):
        parts += ["## What the simulator says of these runs\n\nOf each program under first touch, where it says anything.\n", "\n".join(noted) + "\n"]
    places = [(plan.MACHINE, study.programs), *study.synthetic.items()]
    everything = {f"{name}, {machine}": by for machine, runs in places for name, by in runs.items()}
    if len(everything) > len(study.programs):
        parts += ["## All programs, workloads and machines\n", summary_table(everything, policies)]
    behind = where_behind(study)
    if behind:
        parts += ["## Where pilot is not the fastest\n\nBy more than 0.5 %, greatest distance first.\n", "\n".join(behind) + "\n"]
    if failures:
        parts += ["## What failed\n", "\n".join(f"* {first_line(failure)}" for failure in failures) + "\n"]
    parts.append(CAVEATS)
    sources = "\n".join(f"* {key}: {text}." for key, text in published["sources"].items())
    parts.append(f"## Sources\n\n{sources}\n")
    return "\n".join(parts)
