"""The criteria by which a run of the zoo is judged. Pure: from reports and samples to figures and verdicts; docs/zoo.md states the criteria."""

import csv
import json
import math
import os

# Records that the recorder dropped or could not interpret. The other fields of `losses` are unknowns, not losses.
LOST = ("ring_full", "no_slot", "stopped", "after_end", "stack_table", "damaged_chunks", "torn_chunks", "inconsistent_records")
# At least this share of the accesses has an object.
WITH_OBJECT_MIN = 0.99
# Share of the accesses that may differ by more than both engines' intervals allow, in excess of the difference between two recordings by one engine.
DISAGREEMENT_MAX = 0.03
Z = 1.959_964
# Block copies are accounted to the program's code by `instrument`, and seen in the C library by `emulate`.
COPIES = ("memcpy", "memmove", "memset", "mempcpy", "strcpy", "stpcpy", "strncpy", "bcopy", "bzero")
SITES_KEPT = 40
# Version of the result of `seen`: recordings are repeated when it changes.
SEEN = 5
# For recordings that are kept from before: no home is known to be possible beside those seen.
UNSEEN = [0.0, 0.0, 0.0]


def differing(outputs):
    """Names of files that are not the same in all outputs."""
    names = sorted(set().union(*outputs))
    return [name for name in names if len({output.get(name) for output in outputs}) > 1]


def recording(report):
    """The figures that a report has of its recording."""
    recorded, losses = report["recording"], report["recording"]["losses"]
    samples = report["headline"]["totals"]["samples"] if report.get("headline") else 0
    return {
        "lost": {name: losses[name] for name in LOST if losses.get(name)},
        "unknown": {name: count for name, count in losses.items() if count and name not in LOST},
        "samples": samples,
        "with_object": None if not samples else 1 - losses["accesses_without_object"] / samples,
        "with_home": None if not samples else 1 - losses["accesses_without_home"] / samples,
        "objects": recorded["object_count"],
        "threads": recorded["thread_count"],
        "processes": recorded["process_count"],
        "limits": report.get("limits", []),
    }


def site_name(site):
    """The key by which objects of two recordings are the same: kind, name, and allocation site."""
    return f"{site['kind']} {site['name']} {site['place'] or ''}".strip()


def ranges_of(symbols):
    """Where a library has its block copies: first and last offset of each, from `readelf -sW` of its symbols."""
    found = []
    for line in symbols.splitlines():
        words = line.split()
        if len(words) >= 8 and words[3] == "FUNC" and words[2] != "0" and any(name in words[7] for name in COPIES):
            found.append((int(words[1], 16), int(words[1], 16) + int(words[2], 0) - 1))
    return sorted(set(found))


def callers(stacks):
    """The caller of each call stack's innermost function: the second function of `frames`, by stack, from the table of stacks (CSV)."""
    frames = {row["stack"]: json.loads(row["frames"]) for row in csv.DictReader(stacks.splitlines())}
    return {stack: names[1] for stack, names in frames.items() if len(names) > 1}


def is_own(row, copies=(), caller="", foreign=frozenset()):
    """Whether the access was made by code that the wrapper compiled (it has lines), or copies a block for it.

    Libraries of the system have no lines, or, from a debug package, relative paths. `copies` are the ranges of the C library's block copies:
    it does not name them. `foreign` are functions that libraries offer: what these and nameless ones have copied is not the program's own.
    """
    if os.path.isabs(row["file"]):
        return True
    library, _, offset = row["function"].rpartition("+0x")
    unnamed = library == "libc.so.6" and any(first <= int(offset, 16) <= last for first, last in copies)
    return (unnamed or any(name in row["function"] for name in COPIES)) and "+0x" not in caller and caller not in foreign


def wilson(share, count):
    """95 % interval of a share that is known as well as from `count` equal samples."""
    if count <= 0:
        return 0.0, 1.0
    middle = share + Z * Z / (2 * count)
    half = Z * math.sqrt(share * (1 - share) / count + Z * Z / (4 * count * count))
    bottom = 1 + Z * Z / count
    return max(0.0, (middle - half) / bottom), min(1.0, (middle + half) / bottom)


def interval(total, squares, part, part_squares):
    """Share `part / total` with its interval, by docs/metrics.md: `squares` are the sums of w (c - 1), c the weight of the sample's line.

    The variance is the linearised one of a ratio; few samples on a side, and the whole's own count bounds what is known.
    """
    if total <= 0:
        return [0.0, 0.0, 1.0]
    share = part / total
    spread = (part_squares * (1 - share) ** 2 + (squares - part_squares) * share**2) / total**2
    whole = total**2 / squares if squares > 0 else math.inf
    known = share * (1 - share) / spread if spread > 0 else whole
    count = min(known, whole)
    if math.isinf(count):
        return [share, share, share]
    return [share, *wilson(share, count)]


def seen(rows, sites, copies=(), by_stack=None, foreign=frozenset()):
    """Shares of sites and of their homes, over the accesses by the program's own code: from the table of accesses (CSV).

    The answer: share of all accesses that this is; by site its share, and by node of home its share, each with interval.
    """
    lines, kept, everything = {}, [], 0.0
    for row in csv.DictReader(rows.splitlines()):
        weight = float(row["weight"])
        everything += weight
        # What `calloc` clears is the allocator's until the block is the program's.
        if row["site"] and not sites.get(row["site"], "").startswith("allocator ") and is_own(row, copies, (by_stack or {}).get(row.get("stack"), ""), foreign):
            line = int(row["address"]) >> 6
            lines[line] = lines.get(line, 0.0) + weight
            kept.append((sites.get(row["site"], "?"), row["home"], line, weight))
    total = squares = 0.0
    by_site = {}
    for site, home, line, weight in kept:
        square = weight * (lines[line] - 1)
        total, squares = total + weight, squares + square
        of = by_site.setdefault(site, {})
        sums = of.setdefault(home, [0.0, 0.0])
        sums[0] += weight
        sums[1] += square
    answer = {"own": total / everything if everything else None, "samples": len(kept), "sites": {}}
    for site, homes in by_site.items():
        part, part_squares = (sum(sums[n] for sums in homes.values()) for n in (0, 1))
        answer["sites"][site] = {
            "share": interval(total, squares, part, part_squares),
            "homes": {home: interval(part, part_squares, *sums) for home, sums in homes.items()},
            # What is known of a node on which none was seen.
            "elsewhere": interval(part, part_squares, 0.0, 0.0),
        }
    # The long tail says nothing alone; its weight stays visible as the difference to one.
    ranked = sorted(answer["sites"].items(), key=lambda item: -item[1]["share"][0])[:SITES_KEPT]
    answer["sites"] = dict(ranked)
    return answer


def gap(one, other):
    """How far two intervals are apart; 0 where they meet."""
    return max(0.0, one[1] - other[2], other[1] - one[2])


def agreement(one, other):
    """Shares of the accesses that lie beyond both recordings' intervals: by site, and by home within sites; and the sites to blame, worst first."""
    nothing = [0.0, 0.0, 1.0 / max(1, min(one["samples"], other["samples"]))]
    blame, shares, homes = [], 0.0, 0.0
    for site in sorted(set(one["sites"]) | set(other["sites"])):
        a, b = one["sites"].get(site), other["sites"].get(site)
        by_share = gap(a["share"] if a else nothing, b["share"] if b else nothing) / 2
        by_home = 0.0
        if a and b:
            nodes = set(a["homes"]) | set(b["homes"])
            apart = sum(gap(*(one["homes"].get(node, one.get("elsewhere", UNSEEN)) for one in (a, b))) for node in nodes) / 2
            by_home = apart * (a["share"][0] + b["share"][0]) / 2
        shares, homes = shares + by_share, homes + by_home
        if by_share + by_home > 0.002:
            blame.append((round(by_share + by_home, 4), site))
    return {"shares": shares, "homes": homes, "blame": sorted(blame, reverse=True)[:5]}


def below(run):
    """Whether the plain percentage is below the least share, be it for few samples."""
    return run["with_object"] is not None and run["with_object"] < WITH_OBJECT_MIN


def blind(run):
    """Whether too many accesses have no object: the upper end of the 95 % interval lies below the least share."""
    return run["with_object"] is not None and wilson(run["with_object"], run["samples"])[1] < WITH_OBJECT_MIN


def agree(results):
    """Whether `instrument` and `emulate` agree: True, False, or None where it was not looked at or cannot be told; with the reason.

    Two recordings by `instrument` differ, too, where threads share work anew in each run. Were all three recordings by one engine, `emulate` would be as
    far from these two, by the mean, as they are from each other: so only what is beyond that is the engines'. Where the two are further apart than
    what is allowed, one such distance does not tell what is beyond it.
    """
    one, other, own = (results.get(engine) for engine in ("instrument", "emulate", "again"))
    if any(not run or run["failed"] for run in (one, other)):
        return None, []
    recordings = [one["seen"]] + ([own["seen"]] if own and not own["failed"] else [])
    distances = [agreement(seen, other["seen"]) for seen in recordings]
    between = {what: sum(distance[what] for distance in distances) / len(distances) for what in ("shares", "homes")}
    control = agreement(*recordings) if len(recordings) == 2 else {"shares": 0.0, "homes": 0.0}
    results["agreement"] = {"between": {**between, "blame": distances[0]["blame"]}, "control": control}
    beyond = {what: between[what] - control[what] for what in ("shares", "homes") if between[what] - control[what] > DISAGREEMENT_MAX}
    if not beyond:
        return True, []
    blame = ", ".join(f"`{site}` {100 * by:.1f} %" for by, site in distances[0]["blame"][:2])
    said = ", ".join(f"{100 * by:.1f} % ({what})" for what, by in beyond.items())
    if all(control[what] > DISAGREEMENT_MAX for what in beyond):
        why = "what two recordings by one engine are apart, which is more than is allowed"
        return None, [f"it cannot be told whether engines agree: {said} beyond {why}: {blame}"]
    return False, [f"engines differ beyond intervals by {said}: {blame}"]


def verdicts(results):
    """One program's checks: by name, True, False, or None where it could not be looked at; with reasons."""
    problems, checks = [], {}
    for engine in ("instrument", "emulate", "track"):
        run = results.get(engine)
        if not run or run["failed"]:
            checks[engine] = None if not run else False
            if run:
                problems.append(f"{engine}: {run['failed']}")
            continue
        checks[engine] = True
        if not run["same_output"]:
            problems.append(f"{engine}: other output: {', '.join(run['differing'][:4])}")
        if run["lost"]:
            problems.append(f"{engine}: lost: " + ", ".join(f"{name} {count}" for name, count in run["lost"].items()))
        if blind(run):
            problems.append(f"{engine}: {100 * run['with_object']:.1f} % of the samples have an object")
        checks[engine] = run["same_output"] and not run["lost"] and not blind(run)
    checks["agree"], problem = agree(results)
    problems += problem
    for step in ("source", "build-native", "build-instrument", "input", "native"):
        if results.get(step, {}).get("failed"):
            problems.insert(0, f"{step}: {results[step]['failed']}")
    return checks, problems
