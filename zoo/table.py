"""The table of results: as text, as JSON, and as docs/zoo.md (its head is kept in page.md.in). Pure but for reading that head."""

import re

import judge

COLUMNS = ["program", "version", "languages, threads, build", "output", "lost", "with object", "shares / homes apart", "time x", "memory x"]
ENGINES = ("instrument", "emulate", "track")
MARK = {True: "ok", False: "FAILED", None: "not run"}


def each(results, figure):
    """One figure of the three engines, `-` where a run failed."""
    return " / ".join(figure(run) if (run := results.get(engine)) and not run["failed"] else "-" for engine in ENGINES)


def percent(value):
    return "-" if value is None else f"{100 * value:.2f}".rstrip("0").rstrip(".") if value < 0.9995 else "100"


def marked(run):
    """The plain percentage, with a mark where it is below the least share."""
    return percent(run["with_object"]) + ("*" if judge.below(run) else "")


def times(value):
    return f"{value:.0f}" if value >= 9.5 else f"{value:.1f}"


def gaps(apart):
    return f"{100 * apart['shares']:.1f} / {100 * apart['homes']:.1f}"


def row(results):
    """One program's cells, and its problems."""
    about, (_, problems) = results["program"], judge.verdicts(results)
    native = results.get("native", {"failed": "not run"})
    base = native if not native["failed"] else None
    built = f"{about['languages']}, {about['threading']}, {about['system']}"
    apart = results.get("agreement")
    cells = [
        about["name"],
        f"{results.get('source', {}).get('version') or '-'}",
        built,
        each(results, lambda run: "same" if run["same_output"] else "OTHER"),
        each(results, lambda run: str(sum(run["lost"].values()))),
        each(results, marked),
        f"{gaps(apart['between'])} ({gaps(apart['control'])})" if apart else "-",
        each(results, lambda run: times(run["cpu_s"] / max(0.001, base["cpu_s"]))) if base else "-",
        each(results, lambda run: times(run["rss_kib"] / max(1, base["rss_kib"]))) if base else "-",
    ]
    return cells, problems


def summary(everything):
    """How many programs pass each check, of how many."""
    counts = {}
    for results in everything:
        checks, problems = judge.verdicts(results)
        for engine in ("instrument", "emulate"):
            run = results.get(engine)
            checks[f"{engine} plainly"] = None if not run or run["failed"] or run["with_object"] is None else not judge.below(run)
        for name, value in {**checks, "all": None if None in (checks[name] for name in (*ENGINES, "agree")) and not problems else not problems}.items():
            passed, looked = counts.get(name, (0, 0))
            counts[name] = (passed + (value is True), looked + (value is not None))
    return counts


def sentences(everything):
    counts = summary(everything)
    words = {
        "instrument": "`instrument`: same output, nothing lost, at least 99 % of the samples with an object as far as their number can tell",
        "emulate": "`emulate`: the same",
        "instrument plainly": "`instrument`: at least 99 % of the samples with an object, plainly",
        "emulate plainly": "`emulate`: the same",
        "track": "`track`: same output, nothing lost",
        "agree": "`instrument` and `emulate` agree on shares and homes",
        "all": "all of it",
    }
    return [f"{text}: {passed} of {looked}" for name, text in words.items() for passed, looked in [counts.get(name, (0, 0))]]


def as_text(everything):
    lines = []
    for results in everything:
        cells, problems = row(results)
        lines.append(f"{cells[0]} {cells[1]} ({cells[2]})")
        for name, cell in zip(COLUMNS[3:], cells[3:]):
            lines.append(f"    {name:22} {cell}")
        lines += [f"  ! {problem}" for problem in problems]
    return "\n".join([*lines, "", *[sentence.replace("`", "") for sentence in sentences(everything)]]) + "\n"


def shortened(text, characters=240):
    """For the page, without folders of this machine; zoo.txt has all of it."""
    text = re.sub(r"(?<![\w.])/(?:[^\s/]+/)+", "", text)
    return text if len(text) <= characters else text[:60] + " ... " + text[-(characters - 65) :]


def escape(text):
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ")


def as_page(head, everything, machine, homes):
    """docs/zoo.md: what is checked and how (the head), then when, where, and every row."""
    lines = [head.rstrip(), "", "## Results", ""]
    hardware = f"{machine['cpu']}, {machine['cores']} CPUs, {machine['memory_gib']} GiB"
    lines += [f"Taken on {machine['date']}: {hardware}, {machine['system']}, Linux {machine['kernel']}; {machine['load']}", ""]
    lines += ["- " + sentence for sentence in sentences(everything)]
    lines += ["", "Three values are those of `instrument`, `emulate`, `track`; `*` marks a plain percentage below 99 %, be it one that few samples leave open."]
    lines += ["", "| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    failures = []
    for results in everything:
        cells, problems = row(results)
        lines.append("| " + " | ".join(escape(cell) for cell in [f"`{cells[0]}`", *cells[1:]]) + " |")
        failures += [f"- `{cells[0]}`: {escape(shortened(problem))}" for problem in problems]
    lines += ["", "### What does not pass, and why", "", *(failures or ["Nothing."])]
    recorded = [results[engine] for results in everything for engine in (*ENGINES, "again") if engine in results]
    revisions = sorted({run["revision"] for run in recorded})
    lines += ["", f"Recorded by revisions {', '.join(revisions)}; each run's is in `build/zoo/zoo.json`."]
    return "\n".join([*lines, *homes]) + "\n"
