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
