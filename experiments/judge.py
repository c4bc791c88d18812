"""Published figures beside ours: errors, signs, orders, bounds. Pure, but for reading published.toml (whose comments define its fields)."""

import sys
import tomllib
from dataclasses import dataclass

import figures
import plan

METRICS = ("gain", "local")
SIGNS = ("gain", "loss", "unchanged", "no loss")
# Of what the authors measured we have the algorithm as its paper tells it and as its code has it: both are compared.
STANDS_FOR = {"carrefour": ("carrefour", "carrefour-as-coded")}

EVERYTHING = "everything interleaved"
CONFIGURATION = "what the authors ran, which is not published"


@dataclass
class Comparison:
    """One published statement beside ours. `error`: ours less published, in points (fractions); None where only a sign is published."""

    program: str
    policy: str
    what: str
    published: str
    # None where it is not known.
    ours: float | None
    error: float | None
    agrees: bool
    source: str
    note: str = ""
    # Least and most gain on machines drawn from the model's ranges; None where none was simulated.
    drawn: tuple | None = None


def load(path):
    """The published figures; ends with a message if one of them is of an unknown kind or source."""
    with open(path, "rb") as file:
        try:
            published = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            sys.exit(f"experiments: {path}: {error}")
    for kind, field, allowed in (("figure", "metric", METRICS), ("sign", "sign", SIGNS)):
        for entry in published[kind]:
            if entry[field] not in allowed:
                sys.exit(f"experiments: {path}: {kind} of {entry['program']}: {field} is {entry[field]!r}; it must be one of {', '.join(allowed)}")
    for kind in ("figure", "sign", "bound", "fix"):
        for entry in published[kind]:
            if entry["source"] not in published["sources"]:
                sys.exit(f"experiments: {path}: {kind}: no source {entry['source']!r} under [sources]")
    return published


def sign_agrees(published, ours, within):
    """Whether a gain agrees with a published one, of which only the sign counts, or with a published sign. `within` is how far "unchanged" goes, in the words
    of the authors ("insensitive", "no effect"); it does not turn a gain or a loss of ours into none."""
    if published == "unchanged":
        return abs(ours) <= within
    if published == "no loss":
        return ours >= -within
    is_gain = published == "gain" if isinstance(published, str) else published > 0
    return ours > 0 if is_gain else ours < 0


def number_of(value):
    """A published gain as a number: 0 where the authors say that there is no effect."""
    return 0.0 if isinstance(value, str) else value


def figures_and_signs(study, published):
    """Every published figure and sign of the programs that were run, beside ours."""
    within = published["unchanged"]["within"]
    rows = []
    for entry in published["figure"] + published["sign"]:
        by_policy = study.programs.get(entry["program"], {})
        for policy in STANDS_FOR.get(entry["policy"], (entry["policy"],)):
            if policy not in by_policy or plan.BASE not in by_policy:
                continue
            run = by_policy[policy]
            gain = run.gain_over(by_policy[plan.BASE])
            common = {"program": entry["program"], "policy": policy, "source": entry["source"], "note": entry.get("note", "")}
            if "sign" in entry:
                agrees = sign_agrees(entry["sign"], gain, within)
                drawn = drawn_gains(study, entry["program"], policy)
                rows.append(Comparison(what="gain", published=entry["sign"], ours=gain, error=None, agrees=agrees, drawn=drawn, **common))
                continue
            value = entry["value"]
            ours = gain if entry["metric"] == "gain" else run.local
            # A figure agrees in sign; how near it is, its error says.
            agrees = entry["metric"] != "gain" or sign_agrees(value, gain, within)
            what = {"gain": "gain", "local": "local share"}[entry["metric"]]
            shown = f"{100 * value:+.0f} %" if entry["metric"] == "gain" else f"{100 * value:.0f} %"
            drawn = drawn_gains(study, entry["program"], policy) if entry["metric"] == "gain" else None
            rows.append(Comparison(what=what, published=shown, ours=ours, error=difference(ours, value), agrees=agrees, drawn=drawn, **common))
    return rows


def difference(ours, value):
    """Ours less published; None where ours is not known."""
    return None if ours is None else ours - value


def drawn_gains(study, program, policy):
    """Least and most gain of a policy on the machines that were drawn."""
    runs = [by for by in study.drawn.get(program, []) if policy in by and plan.BASE in by]
    gains = [by[policy].gain_over(by[plan.BASE]) for by in runs]
    # Of fewer, least and most would hold less than they are said to.
    return (min(gains), max(gains)) if len(gains) >= plan.DRAWN else None


def orders(study, published):
    """Programs with several published gains: (program, published order, ours, whether they agree), the slowest policy first."""
    rows = []
    for program, by_policy in study.programs.items():
        known = {entry["policy"]: entry["value"] for entry in published["figure"] if entry["program"] == program and entry["metric"] == "gain"}
        if len(known) < 2 or plan.BASE not in by_policy or any(policy not in by_policy for policy in known):
            continue
        known[plan.BASE] = 0.0
        theirs = sorted(known, key=known.get)
        ours = sorted(known, key=lambda policy: by_policy[policy].speed)
        rows.append((program, theirs, ours, theirs == ours))
    return rows


def bounds(study, published):
    """Published worst cases: (policy, bound, our worst gain, whose, whether it holds)."""
    rows = []
    for entry in published["bound"]:
        for policy in STANDS_FOR.get(entry["policy"], (entry["policy"],)):
            worst = figures.worst(figures.gains(study.programs, policy, plan.BASE))
            if worst:
                rows.append((policy, entry["worst"], *worst, worst[0] >= entry["worst"]))
    return rows


def fixes(study, published):
    """MemProf's case studies: each figure of each fix beside ours."""
    within = published["unchanged"]["within"]
    rows = []
    for entry in published["fix"]:
        if entry["program"] not in study.fixes:
            continue
        before, after = study.fixes[entry["program"]]
        base, spread, fixed = before[plan.BASE], before["interleave"], after[plan.BASE]
        common = {"program": entry["program"], "source": entry["source"], "note": entry.get("note", "")}
        for what, policy, value, ours in (
            ("gain", entry["fix"], entry["gain"], fixed.gain_over(base)),
            ("gain", EVERYTHING, entry["interleave"], spread.gain_over(base)),
        ):
            shown, error = (value, None) if isinstance(value, str) else (f"{100 * value:+.3g} %", ours - value)
            rows.append(Comparison(what=what, policy=policy, published=shown, ours=ours, error=error, agrees=sign_agrees(value, ours, within), **common))
        for policy, value, run in (("as it was", entry["remote_before"], base), (entry["fix"], entry["remote_after"], fixed)):
            ours, shown = None if run.local is None else 1 - run.local, f"{100 * value:.3g} %"
            rows.append(Comparison(what="remote share", policy=policy, published=shown, ours=ours, error=difference(ours, value), agrees=True, **common))
    return rows


@dataclass
class Predicted:
    """A published gain beside its prediction. `published`: the gain, or the sign where only that is known; gains are fractions."""

    program: str
    what: str
    machine: str
    published: float | str
    median: float
    low: float
    high: float
    sign_agrees: bool
    source: str
    comes_from: str
    # What the authors may have run, the most likely first.
    parts: tuple = ()

    @property
    def inside(self):
        """Whether the 90 % interval holds the published gain; None where only a sign is published."""
        return None if isinstance(self.published, str) else self.low <= self.published <= self.high

    @property
    def width(self):
        return self.high - self.low

    @property
    def error(self):
        return None if isinstance(self.published, str) else self.median - self.published


@dataclass
class Part:
    """The prediction of one configuration that the authors may have run."""

    name: str
    weight: float
    median: float
    low: float
    high: float


def statements(published):
    """Every published gain that `whatif` can be asked for: its entry, what was done, what is asked, the gain."""
    for kind in ("figure", "sign", "fix"):
        for entry in published[kind]:
            for (asks, value), what in zip(plan.asked(kind, entry), (entry.get("fix", EVERYTHING), EVERYTHING)):
                yield entry, what, asks, value


def waiting(study, published):
    """In words: what of the programs that were asked for is not predicted yet, because some configurations are not."""
    said = []
    for entry, what, asks, _ in statements(published):
        known = sum(ask in study.predicted for ask in asks)
        if entry["program"] in study.asked and known < len(asks):
            said.append(f"`{entry['program']}`, {what}, {asks[0].machine}: {known} of {len(asks)} configurations are predicted")
    return said


def predictions(study, published):
    """Every published gain that `whatif` can be asked for, beside its prediction."""
    within, rows = published["unchanged"]["within"], []
    for entry, what, asks, value in statements(published):
        # Without the prediction of every configuration, the interval would hold less than is not known.
        if any(ask not in study.predicted for ask in asks):
            continue
        answers, weights = [study.predicted[ask] for ask in asks], [ask.weight for ask in asks]
        low, median, high = figures.mixture(answers, weights)
        parts = tuple(Part(ask.configuration, ask.weight, told["median"], *told["likely"]) for ask, told in zip(asks, (one["uncertainty"] for one in answers)))
        common = {"source": entry["source"], "comes_from": comes_from(answers, weights), "parts": parts}
        agrees, done = sign_agrees(value, median, within), f"{what}{of_what(answers)}"
        rows.append(Predicted(entry["program"], done, asks[0].machine, value, median, low, high, agrees, **common))
    return rows


def of_what(answers):
    """Behind what is done: what the predictions are of, where that is not the run time, of all of them or of some."""
    of_work = sum(answer.get("of") == plan.PROCESSOR_TIME for answer in answers)
    if not of_work:
        return ""
    return f" ({plan.PROCESSOR_TIME})" if of_work == len(answers) else f" ({plan.PROCESSOR_TIME} of {of_work} of {len(answers)} configurations)"


def comes_from(answers, weights):
    """In words: the two greatest sources of an interval's width. Of several configurations, sources are those of the first, with what is left to them."""
    between = figures.share_between(answers, weights)
    shares = [(source["words"], source["share"] * (1 - between)) for source in answers[0]["uncertainty"]["sources"]]
    if len(answers) > 1:
        shares.append((CONFIGURATION, between))
    shares.sort(key=lambda one: -one[1])
    return "; ".join(f"{words} {100 * share:.0f} %" for words, share in shares[:2])


def is_far(row, published):
    """Whether a figure is further off than published.toml lets go without a word."""
    if row.error is None:
        return False
    if row.what == "gain":
        return abs((1 + row.ours) / (1 + row.ours - row.error) - 1) > published["missed"]["speedup"]
    return abs(row.error) > published["missed"]["share"]


def missed(study, published):
    """In words: what does not come out as published. Signs and orders first, then figures."""
    rows, cases = figures_and_signs(study, published), fixes(study, published)
    said = []
    for row in rows + cases:
        if not row.agrees:
            by = f", {100 * row.error:+.0f} points off" if row.error is not None else ""
            said.append(f"Sign of `{row.program}`, {row.policy}: published {row.published}, ours {100 * row.ours:+.1f} %{by}.")
    for program, theirs, ours, agrees in orders(study, published):
        if not agrees:
            said.append(f"Order of `{program}`: published {' < '.join(theirs)}, ours {' < '.join(ours)}.")
    for entry in published["fix"]:
        gains = {row.policy: row.ours for row in cases if row.program == entry["program"] and row.what == "gain"}
        if gains and (entry["gain"] > number_of(entry["interleave"])) != (gains[entry["fix"]] > gains[EVERYTHING]):
            ours = f"ours {100 * gains[entry['fix']]:+.1f} % and {100 * gains[EVERYTHING]:+.1f} %"
            said.append(f"Order of `{entry['program']}`: published that {entry['fix']} beats everything interleaved, {ours}.")
    for policy, bound, gain, program, holds in bounds(study, published):
        if not holds:
            said.append(f"Bound of {policy}: published never more than {-100 * bound:.0f} % worse than first touch, ours {100 * gain:+.1f} % (`{program}`).")
    for row in rows + cases:
        if row.agrees and is_far(row, published):
            ours = f"{100 * row.ours:+.1f} %" if row.what == "gain" else f"{100 * row.ours:.1f} %"
            said.append(f"Size of `{row.program}`, {row.policy}, {row.what}: published {row.published}, ours {ours}, {100 * row.error:+.0f} points off.")
    return said
