"""Two revisions' figures against each other: ratios of pairs, their interval, a verdict. Pure functions.

The interval is that of the median by order statistics: with n pairs, the k-th least and the k-th greatest ratio hold the true median with a probability that
follows from n and k alone (tosses of a coin), whatever the ratios' distribution. Nothing is drawn by chance.
"""

import json
import math
import statistics
from dataclasses import asdict, dataclass

from benchmarks.figures import VERSION, shown

# The interval holds the true median at least this often.
CONFIDENCE = 0.95
SLOWER, FASTER, SAME, TOO_FEW = "slower", "faster", "no difference seen", "too few runs"
# The same verdicts on figures that are sizes.
OF_SIZES = {SLOWER: "larger", FASTER: "smaller"}
SIZES = ("bytes", "MiB")


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    confidence: float


@dataclass(frozen=True)
class Row:
    """One figure of both revisions. The ratio is that of costs, new over old, also where the figure is a rate: above 1 is worse."""

    benchmark: str
    name: str
    unit: str
    old: float | None
    new: float | None
    pairs: int
    ratio: float | None
    interval: Interval | None
    verdict: str

    def is_slower_by(self, limit):
        """Whether it is slower (or larger), and by more than a share such as 0.05: the interval leaves no doubt of the one, the median says the other."""
        return self.verdict in (SLOWER, OF_SIZES[SLOWER]) and self.ratio > 1 + limit


def interval_of_median(values, confidence=CONFIDENCE):
    """The narrowest symmetric one of at least this confidence; None if there are too few values for any."""
    ordered, count = sorted(values), len(values)
    below, found = 0.0, None
    for cut in range(count // 2):
        below += math.comb(count, cut) / 2**count
        held = 1 - 2 * below
        if held < confidence:
            break
        found = Interval(ordered[cut], ordered[count - 1 - cut], held)
    return found


def costs(pairs, better):
    """New over old of each pair (old, new) as costs. A pair with a figure that is not above zero has no ratio."""
    return [new / old if better == "less" else old / new for old, new in pairs if old > 0 and new > 0]


def verdict(interval, unit):
    if interval is None:
        return TOO_FEW
    word = SLOWER if interval.low > 1 else FASTER if interval.high < 1 else SAME
    return OF_SIZES.get(word, word) if unit in SIZES else word


def row(figure, pairs):
    """`figure`: any one of those in the pairs of values (old, new), which were measured one after the other."""
    ratios = costs(pairs, figure.better)
    interval = interval_of_median(ratios)
    ratio = statistics.median(ratios) if ratios else None
    old, new = (statistics.median(values) for values in zip(*pairs))
    word = verdict(interval, figure.unit)
    return Row(figure.benchmark, figure.name, figure.unit, old, new, len(ratios), ratio, interval, word)


def of_one_side(figure, values, is_new):
    """The row of a figure that only one revision has."""
    old, new = (None, statistics.median(values)) if is_new else (statistics.median(values), None)
    return Row(figure.benchmark, figure.name, figure.unit, old, new, 0, None, None, f"only in the {'new' if is_new else 'old'} one")


def rows(runs):
    """Rows from the runs of benchmarks: triples of name, figures of the old revision, figures of the new one, each a pair measured one after the other."""
    seen = {}
    for _, old, new in runs:
        olds, news = ({figure.key: figure for figure in side if figure.better != "neither"} for side in (old, new))
        for key in list(olds) + [key for key in news if key not in olds]:
            figure = news.get(key) or olds[key]
            one = seen.setdefault(key, {"figure": figure, "pairs": [], "old": [], "new": []})
            if key in olds and key in news:
                one["pairs"].append((olds[key].value, news[key].value))
            else:
                one["new" if key in news else "old"].append(figure.value)
    return [of_seen(one) for one in seen.values()]


def of_seen(one):
    if one["pairs"]:
        return row(one["figure"], one["pairs"])
    is_new = bool(one["new"])
    return of_one_side(one["figure"], one["new"] or one["old"], is_new)


def ratio_words(row):
    if row.ratio is None:
        return "-"
    if row.interval is None:
        return f"{row.ratio:.3f}"
    return f"{row.ratio:.3f} ({row.interval.low:.3f} to {row.interval.high:.3f})"


def table(all_rows):
    """Text: benchmark, old, new, ratio with its interval, verdict."""
    head = ("benchmark", "old", "new", "ratio (interval)", "verdict")
    cells = [(f"{row.benchmark}: {row.name}", shown(row.old, row.unit), shown(row.new, row.unit), ratio_words(row), row.verdict) for row in all_rows]
    widths = [max(len(line[column]) for line in [head, *cells]) for column in range(len(head))]

    def line(words):
        first, *others = words
        return "  ".join([first.ljust(widths[0])] + [word.rjust(width) for word, width in zip(others[:-1], widths[1:])] + [others[-1]])

    return "\n".join(map(line, [head, *cells])) + "\n"


def legend(all_rows, limit):
    """What the table's ratios and verdicts mean, and how many differences chance alone would show."""
    known = [row.interval.confidence for row in all_rows if row.interval]
    lines = ["Ratios are those of costs, new over old (of a rate, old over new): above 1 is worse. Medians of pairs of runs, one after the other."]
    if known:
        chance = sum(1 - confidence for confidence in known)
        lines.append(f"Intervals: order statistics of the pairs' ratios, which hold the median in {min(known):.1%} of cases or more. "
                     f"Of {len(known)} figures, {chance:.1f} would differ by chance.")
    worse = [row for row in all_rows if row.is_slower_by(limit)]
    names = "; ".join(f"{row.benchmark}: {row.name} ({row.ratio:.3f})" for row in worse)
    lines.append(f"Worse by more than {limit:.1%}: {names or 'none'}.")
    return "\n".join(lines) + "\n"


def as_json(all_rows, limit, failed, about):
    """The file of a comparison. `failed`: exceptions of benchmarks that have no rows for it."""
    data = [{**asdict(row), "is_over_limit": row.is_slower_by(limit)} for row in all_rows]
    whole = {"version": VERSION, **about, "limit": limit, "rows": data, "failed": [str(failure) for failure in failed]}
    return json.dumps(whole, indent=1) + "\n"
