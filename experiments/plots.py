"""Which plots there are, and what they show; drawn by svg.py. Pure."""

import judge
import plan
import svg

# Beyond this bars are cut off and say their value: one program must not flatten the others.
GAIN_LIMIT_PERCENT = 300.0
FIX_COLOUR = "#BBBBBB"


def by_program(runs, policies, figure):
    """`figure(run, base)` of each program and policy, where there is one."""
    return {
        program: {policy: value for policy in policies if policy in by and (value := figure(by[policy], by[plan.BASE])) is not None}
        for program, by in runs.items()
        if plan.BASE in by
    }


def markers(published, metric, policies):
    """Published figures, in per cent, by program and policy."""
    found = {}
    for entry in published["figure"]:
        if entry["metric"] == metric and entry["policy"] in policies:
            found.setdefault(entry["program"], {})[entry["policy"]] = 100 * entry["value"]
    return found


def case_studies(study, published):
    series = ["the authors' fix", "everything interleaved"]
    values = {
        program: {series[0]: 100 * after[plan.BASE].gain_over(before[plan.BASE]), series[1]: 100 * before["interleave"].gain_over(before[plan.BASE])}
        for program, (before, after) in study.fixes.items()
    }
    theirs = {
        entry["program"]: {series[0]: 100 * entry["gain"], series[1]: 100 * judge.number_of(entry["interleave"])}
        for entry in published["fix"]
        if entry["program"] in values
    }
    title = f"MemProf's case studies: gain over the program as it was (simulated {plan.MEMPROF_MACHINE})"
    return svg.grouped_bars(title, "gain, %", list(values), series, values, theirs, None, [FIX_COLOUR, *palette_of(["interleave"])])


def drawings(study, published):
    """SVG by name, of each plot that there are results for."""
    policies, runs = study.policies, study.programs
    others = [policy for policy in policies if policy != plan.BASE]
    kinds = [
        ("gains", "Gain over first touch, by program and policy", "gain, %", others,
         lambda run, base: 100 * run.gain_over(base), "gain", GAIN_LIMIT_PERCENT),
        ("imbalance", "Imbalance of memory controllers (population), by program and policy", "imbalance, %", policies,
         lambda run, _: None if run.imbalance is None else 100 * run.imbalance, None, None),
        ("local", "Share of memory accesses that are local, by program and policy", "local, %", policies,
         lambda run, _: None if run.local is None else 100 * run.local, "local", None),
        ("latency", "Mean latency of memory accesses, by program and policy", "cycles", policies, lambda run, _: run.latency_cycles, None, None),
    ]
    found = {}
    if runs:
        for name, title, unit, shown, figure, metric, limit in kinds:
            values = by_program(runs, shown, figure)
            marked = {program: by for program, by in markers(published, metric, shown).items() if program in values} if metric else {}
            found[name] = svg.grouped_bars(f"{title} (simulated {plan.MACHINE})", unit, list(values), shown, values, marked, limit, palette_of(shown))
    if study.fixes:
        found["case-studies"] = case_studies(study, published)
    for machine, runs in study.synthetic.items():
        if runs:
            values = by_program(runs, others, lambda run, base: 100 * run.gain_over(base))
            title = f"Synthetic workloads: gain over first touch, by policy (simulated {machine})"
            found[f"synthetic-{machine}"] = svg.grouped_bars(title, "gain, %", list(values), others, values, {}, None, palette_of(others))
    return found


def palette_of(shown):
    """A policy has one colour in every plot."""
    order = plan.POLICIES + [plan.OPTIMUM]
    return [svg.COLOURS[order.index(policy)] for policy in shown]
