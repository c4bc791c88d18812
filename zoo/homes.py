"""Page homes of programs beside a real kernel's: `cargo xtask homes` for the workloads and for the zoo's programs that fit in the guest, and their table."""

import datetime
import json
import os

import files
import steps
import store

# Every workload at its smallest size, with the variants that place differently.
WORKLOADS = {
    "streamcluster": ["naive", "partitioned"],
    "facerec": ["naive"],
    "psearchy": ["naive", "local"],
    "webserver": ["naive"],
    "pca": ["naive"],
    "swaptions": ["naive"],
    "pipeline": ["naive", "local"],
    "phases": ["naive", "local"],
    "bfs": ["naive"],
    "is": ["serial", "parallel"],
    "mg": ["parallel"],
    "bt": ["parallel"],
    "cg": ["naive", "parallel"],
    "cgf": ["parallel"],
}
LIMIT_S = 420
COLUMNS = ["program", "pages", "same, %", "with known reasons, %", "explained", "other", "simulated only", "kernel only", "objects with other homes", "taken"]
WORST = 3


def workloads(folder):
    """What to compare: label and command."""
    found = []
    for name, variants in WORKLOADS.items():
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            found += [(f"{name} {variant}", [path, "--size", "test", "--threads", "4", "--variant", variant]) for variant in variants]
    return found


def compare(zoo, xtask, label, command, cwd):
    """One comparison, kept in the store; a failure is kept as such."""
    path = zoo.store.path("homes", label.replace(" ", "-") + ".json")
    key = store.key_of(command, zoo.binary, store.hash_of(xtask))
    try:
        with open(path, encoding="utf-8") as file:
            kept = json.load(file)
        if kept["key"] == key and not kept["failed"]:
            return kept
    except (OSError, ValueError, KeyError):
        pass  # Absent, or from another version: made anew.
    os.makedirs(cwd, exist_ok=True)
    out, err = zoo.store.path("homes", "out"), zoo.store.path("homes", "err")
    os.makedirs(zoo.store.path("homes"), exist_ok=True)
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    words = [xtask, "homes", "--json", "--numapilot", zoo.numapilot, "--limit", str(LIMIT_S), "--", *command]
    took = steps.run(words, cwd, environment, out, err, LIMIT_S + 120)
    done = {"key": key, "label": label, "failed": "", "revision": zoo.revision, "date": datetime.date.today().isoformat()}
    try:
        with open(out, encoding="utf-8") as file:
            done.update(json.load(file))
    except ValueError:
        done["failed"] = f"{took.problem or took.status}: {steps.tail(err, 300)}"
    if not done["failed"] and done["exit"] != 0:
        done["failed"] = f"the program ended with {done['exit']} in the guest"
    files.write(path, json.dumps(done, indent=1) + "\n")
    zoo.say(f"homes of {label}: {done['failed'] or share(done['total'])}")
    return done


def simulated(pages):
    return pages["same"] + pages["explained"] + pages["other"] + pages["simulated_only"]


def share(pages, *more):
    """Per cent of the pages with a simulated home that are the same (and more)."""
    whole = simulated(pages)
    return "-" if whole == 0 else f"{100 * sum(pages[name] for name in ('same', *more)) / whole:.2f}"


def row(done):
    if done["failed"]:
        return [f"`{done['label']}`", *["-"] * (len(COLUMNS) - 3), done["failed"], done.get("date", "-")]
    pages = done["total"]
    worst = sorted(done["objects"], key=lambda one: -(one["pages"]["other"] + one["pages"]["simulated_only"]))[:WORST]
    blame = ", ".join(
        f"{one['kind']} `{one['name']}` {one['pages']['other'] + one['pages']['simulated_only']} of {simulated(one['pages'])}"
        for one in worst
        if one["pages"]["other"] + one["pages"]["simulated_only"]
    )
    reasons = ", ".join(f"{name} {count}" for name, count in done.get("reasons", {}).items())
    counts = [reasons or str(pages["explained"]), *(str(pages[name]) for name in ("other", "simulated_only", "kernel_only"))]
    return [f"`{done['label']}`", str(simulated(pages)), share(pages), share(pages, "explained"), *counts, blame or "none", done.get("date", "-")]


def table(everything):
    """Lines of the page."""
    if not everything:
        return []
    lines = ["", "## Results: homes against a real kernel", "", "| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row(done)) + " |" for done in everything]
    judged = [done for done in everything if not done["failed"]]
    held = [done for done in judged if done["total"]["other"] + done["total"]["simulated_only"] <= 0.01 * simulated(done["total"])]
    said = f"{len(held)} of {len(judged)}; not compared: {len(everything) - len(judged)}."
    lines += ["", f"At least 99 % of the pages with the same home, or elsewhere for a known reason: {said}"]
    return lines


def load(zoo):
    """All comparisons that there are."""
    folder = zoo.store.path("homes")
    names = sorted(name for name in os.listdir(folder) if name.endswith(".json")) if os.path.isdir(folder) else []
    found = []
    for name in names:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            found.append(json.load(file))
    return found
