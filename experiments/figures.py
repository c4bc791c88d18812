"""Figures of one simulated run and of many: gains, means, regret. Pure; shares and gains are fractions (0.5 is 50 %)."""

import math


class Run:
    """One policy's run in an answer of `numapilot simulate --json` (docs/simulator.md)."""

    def __init__(self, run):
        metrics = run["total"]["metrics"]
        self.policy = run["policy"]
        self.seconds = run["run_time_ns"] / 1e9
        # A run that was cut off counts by what it got done.
        self.speed = run["progress"] / self.seconds
        self.local = metrics["local_access_ratio"]
        self.latency_cycles = metrics["memory_latency_cycles"]
        self.imbalance = (metrics["controller_imbalance"] or {}).get("population")
        self.accesses_per_us = run["total"]["accesses_per_us"]
        moves = run["moves"]
        self.pages_moved = moves["small_pages"] + moves["large_pages"]
        self.copies, self.threads_moved, self.collapsed = moves["copies_made"], moves["threads"], moves["collapsed"]
        self.notes = run["notes"]

    def gain_over(self, base):
        """How much faster: 1.0 is twice as fast."""
        return self.speed / base.speed - 1


# What is kept of a prediction's distribution: these quantiles of its gain.
QUANTILES = (0.025, 0.05, 0.5, 0.95, 0.975)
# A normal distribution's 5 and 95 % quantiles are so many deviations apart.
LIKELY_DEVIATIONS = 3.29


def quantiles_of(answer):
    """Of an answer of `numapilot whatif --json`: the gains at QUANTILES."""
    told = answer["uncertainty"]
    low, high = told["likely"]
    return sorted([answer["gain_low"], low, told["median"], high, answer["gain_high"]])


def share_below(quantiles, gain):
    """Share of a distribution up to `gain`: linear between the quantiles that are known, nothing beyond the outermost."""
    if gain < quantiles[0]:
        return 0.0
    for (low, high), (below, up_to) in zip(zip(quantiles, quantiles[1:]), zip(QUANTILES, QUANTILES[1:])):
        if gain < high:
            return below + (up_to - below) * (gain - low) / (high - low)
    return 1.0


def shares_of(answers, weights):
    """Weights that add up to 1; equal ones without any."""
    weights = weights or [1.0] * len(answers)
    return [weight / sum(weights) for weight in weights]


def mixture(answers, weights=None):
    """Median and 90 % interval of several predictions of which one is right: (low, median, high). `weights`: how likely each is to be the one (without:
    equally). The mixture's distribution is the weighted sum of theirs, each of which is known at QUANTILES and linear between. Of one, what it says."""
    if len(answers) == 1:
        told = answers[0]["uncertainty"]
        return told["likely"][0], told["median"], told["likely"][1]
    of_each = list(zip(shares_of(answers, weights), map(quantiles_of, answers)))

    def gain_at(share):
        low, high = min(one[0] for _, one in of_each), max(one[-1] for _, one in of_each)
        for _ in range(60):
            middle = (low + high) / 2
            is_below = sum(weight * share_below(one, middle) for weight, one in of_each) < share
            low, high = (middle, high) if is_below else (low, middle)
        return high

    return gain_at(0.05), gain_at(0.5), gain_at(0.95)


def share_between(answers, weights=None):
    """Share of a mixture's variance that is between its parts."""
    shares = shares_of(answers, weights)
    medians = [answer["uncertainty"]["median"] for answer in answers]
    widths = [answer["uncertainty"]["likely"][1] - answer["uncertainty"]["likely"][0] for answer in answers]
    mean = sum(share * median for share, median in zip(shares, medians))
    between = sum(share * (median - mean) ** 2 for share, median in zip(shares, medians))
    within = sum(share * (width / LIKELY_DEVIATIONS) ** 2 for share, width in zip(shares, widths))
    return between / (between + within) if between > 0 else 0.0


def gains(runs, policy, base):
    """Gains of `policy` over `base`, by name of the program, of those that have both. `runs`: by program, by policy."""
    return {name: by[policy].gain_over(by[base]) for name, by in runs.items() if policy in by and base in by}


def geometric_mean(gains_of_programs):
    """Of the speed-ups; as a gain."""
    values = list(gains_of_programs)
    return math.exp(sum(math.log1p(gain) for gain in values) / len(values)) - 1 if values else None


def worst(gains_by_program):
    """The smallest gain and whose it is."""
    return min(((gain, name) for name, gain in gains_by_program.items()), default=None)


def regrets(runs, policy, optimum):
    """Run time over the optimum's, less 1, by program."""
    return {name: by[optimum].speed / by[policy].speed - 1 for name, by in runs.items() if policy in by and optimum in by}


def summary(runs, policies, base, optimum):
    """Per policy: geometric mean of gains, the worst with its program, mean and greatest regret (None without an optimum)."""
    rows = []
    for policy in policies:
        of_policy = gains(runs, policy, base)
        if not of_policy:
            continue
        regret = regrets(runs, policy, optimum)
        rows.append({
            "policy": policy,
            "programs": len(of_policy),
            "mean": geometric_mean(of_policy.values()),
            "worst": worst(of_policy),
            "regret": sum(regret.values()) / len(regret) if regret else None,
            "most": max(((value, name) for name, value in regret.items()), default=None),
        })
    return rows
