"""The closed loop: what `whatif` predicts of a recording, beside what recordings with the change find. For the experiments and the zoo. Starts no process."""

import json
import os
from dataclasses import asdict, dataclass

# Recordings of each side: one says what is predicted, all say how much equal runs differ. Of two on each side, programs whose threads race for their work had
# intervals of 100 points and more, in which any gain lies.
RUNS = 4
INTERLEAVED = "everything interleaved"
PLANNED = "the report's plan"
# A change of the run time by less counts as none where signs are compared.
NO_CHANGE = 0.05


@dataclass(frozen=True)
class Tried:
    """A change: how `record` makes it, and how `whatif` is asked for it."""

    what: str
    record: tuple
    ask: tuple


@dataclass(frozen=True)
class Row:
    """A change of a program. Gains as shares of the new run time; found ones with the 95 % interval of the recordings' spread."""

    program: str
    what: str
    predicted: float
    low: float
    high: float
    found: float
    found_low: float
    found_high: float

    @property
    def inside(self):
        """Whether the interval that was predicted holds what was found."""
        return self.low <= self.found <= self.high

    @property
    def meets(self):
        """Whether the two intervals meet: what is found is known only so well."""
        return self.low <= self.found_high and self.found_low <= self.high

    @property
    def sign_agrees(self):
        """Whether the found gain has the predicted sign; None where it has none: it is too small, or equal runs differ by more. Nothing could contradict it."""
        is_none = abs(self.found) <= NO_CHANGE or self.found_low <= 0 <= self.found_high
        return None if is_none else (self.predicted > 0) == (self.found > 0)


def changes(ask, trace, folder):
    """What is tried on the program of a recording: all its memory interleaved, and the plan that its report writes, where that has a rule.

    `ask` runs numapilot with words and answers what it printed. The plan is kept in `folder`.
    """
    plan = os.path.join(folder, "fix.toml")
    ask("report", trace, "--plan", plan)
    with open(plan, encoding="utf-8") as file:
        has_rules = "[[" in file.read()
    tried = [Tried(INTERLEAVED, ("--placement", "interleave"), ("--set", "*=interleave"))]
    return tried + ([Tried(PLANNED, ("--plan", plan), ("--plan", plan))] if has_rules else [])


def row(program, what, predicted, compared):
    """From the answers of `whatif --json` and `compare --json`: of processor times where sleeps decide how long the run is, as the prediction says then."""
    answer, told = json.loads(predicted), json.loads(compared)
    ends, work = ("value", "low", "high"), answer.get("work_gain")
    if work:
        what, foretold, found = f"{what} (processor time)", [work[key] for key in ends], (told.get("prediction") or {}).get("found")
    else:
        foretold, found = [answer[key] for key in ("gain", "gain_low", "gain_high")], told["gain"]
    if found is None:
        raise ValueError(f"the {'processor' if work else 'run'} times cannot be compared")
    # JSON has no infinity: an end of an interval that is none is null.
    if None in foretold or None in [found[key] for key in ends]:
        raise ValueError("an interval has no end: the model did not converge")
    return Row(program, what, *foretold, *(found[key] for key in ends))


def rows(program, record, ask, folder, on_failure=None):
    """One row of each change. `record` makes a recording of a name with further options of numapilot's, and answers its path. `on_failure` is told of a change
    that failed, and why, and the others go on; without it, the first failure ends all."""
    before = [record(f"before-{number}.numatrace", "--seed", str(number)) for number in range(1, RUNS + 1)]
    found = []
    for number, tried in enumerate(changes(ask, before[0], folder)):
        try:
            found.append(tried_out(program, record, ask, folder, before, number, tried))
        except Exception as error:
            if on_failure is None:
                raise
            on_failure(tried.what, error)
    return found


def tried_out(program, record, ask, folder, before, number, tried):
    """The row of one change, of recordings with and without it."""
    predicted = ask("whatif", before[0], "--json", *tried.ask)
    after = [record(f"after-{number}-{seed}.numatrace", "--seed", str(seed), *tried.record) for seed in range(1, RUNS + 1)]
    foretold = ()
    if json.loads(predicted).get("work_gain"):
        path = os.path.join(folder, f"predicted-{number}.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(predicted)
        foretold = ("--prediction", path)
    compared = ask("compare", before[0], after[0], "--before", *before[1:], "--after", *after[1:], "--quiet", *foretold, "--json")
    return row(program, tried.what, predicted, compared)


def kept(one):
    """A row as JSON keeps it; `Row(**kept)` is it again."""
    return asdict(one)


def percent(share):
    return f"{100 * share:+.1f}"


def table(rows):
    """Markdown."""
    lines = ["| program | change | predicted, % | 95 % interval | found, % | inside |", "| --- | --- | --- | --- | --- | --- |"]
    for one in rows:
        inside = "yes" if one.inside else "within both intervals" if one.meets else "**no**"
        found = f"{percent(one.found)} ({percent(one.found_low)} to {percent(one.found_high)})"
        cells = [f"`{one.program}`", one.what, percent(one.predicted), f"{percent(one.low)} to {percent(one.high)}", found, inside]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def verdict(rows):
    """How good the predictions are over all."""
    count = len(rows)
    if count == 0:
        return "Nothing was tried.\n"
    inside, meets = (sum(getattr(one, what) for one in rows) for what in ("inside", "meets"))
    signs = [one.sign_agrees for one in rows if one.sign_agrees is not None]
    error = sum(abs(one.predicted - one.found) for one in rows) / count
    width = sum(one.high - one.low for one in rows) / count
    return (
        f"{inside} of {count} gains that were found lie inside the interval that was predicted; of {meets} the two intervals meet. The predictions' mean\n"
        f"absolute error is {100 * error:.1f} points, their intervals' mean width {100 * width:.1f} points (a wide net\n"
        f"catches all); of {len(signs)} found gains that have a sign, {sum(signs)} have the predicted one.\n"
    )
