"""Runs a server under a load, natively and recorded, in turn; keeps what the recording says and what it cost."""

import json
import os
import pwd
import shlex
import shutil
import socket
import statistics
import string
import subprocess

import fetch
import files
import packages
import steps

# `attach` is engine fault on a server that runs already.
ENGINES = ["fault", "attach", "track", "emulate"]
MACHINE = "opteron-8385"
# The server below a shell that notes what it and its children took, and who it is for those that attach.
TIMED = 'echo $$ > "$DIR/process"; "$@"; status=$?; times > "$DIR/times"; exit $status'
TOP = 3
LOST = ["ring_full", "no_slot", "stopped", "after_end", "stack_table", "damaged_chunks", "torn_chunks", "inconsistent_records"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def children_s(times):
    """User and system time of what a shell waited for, in seconds: the second line of `times`, `0m1.50s 0m0.25s`."""
    minutes = [part.rstrip("s").split("m") for part in times.splitlines()[1].split()]
    return sum(60 * int(whole) + float(seconds) for whole, seconds in minutes)


def client_script(server, engine):
    """What a client does beside the server: waits until it answers, attaches, asks, ends it."""
    ready = server.ready or '[ -s "$DIR/process" ]'
    lines = [f"tries=0; until {{ {ready}; }} >/dev/null 2>&1; do tries=$((tries + 1)); [ $tries -lt 6000 ]; sleep 0.1; done"]
    attach = '"$NUMAPILOT" record --engine fault --pid "$(cat "$DIR/process")" -o "$TRACE"'
    if engine == "attach":
        lines.append(attach + " --detach" if server.ask else attach)
    lines.append(server.ask)
    if engine == "attach" and server.ask:
        lines.append('"$NUMAPILOT" record --stop "$TRACE"')
    return "\n".join([*lines, server.stop])


def full_name(site):
    """An object's name, with its place where that says more."""
    name, place = site["name"], site["place"]
    return f"{name} ({place})" if place and place not in name else name


def names_of(report):
    """Largest objects as (name, share): of accesses or pages, or of the heap at its peak. None where nothing was recorded of the server itself."""
    if report["recording"].get("unrecorded_program"):
        return []
    if report["recording"]["engine"] == "track":
        heap = report["heap"] or {"sites": [], "peak_bytes": 0}
        sites = [(site, site["at_peak_bytes"] / max(1, heap["peak_bytes"])) for site in heap["sites"]]
    else:
        sites = [(site, (site["share"] or {"value": 0})["value"]) for site in report["sites"] if site["key"] != "unknown"]
    sites.sort(key=lambda both: -both[1])
    return [(full_name(site), share) for site, share in sites[:TOP]]


def summary(report):
    """What the table shows of a report."""
    totals, losses = report["headline"]["totals"], report["recording"]["losses"]
    return {
        "counted": report["counted"],
        "samples": totals["samples"],
        "without": losses["accesses_without_object"],
        "objects": report["recording"]["object_count"],
        "processes": report["recording"]["process_count"],
        "threads": report["recording"]["thread_count"],
        "lost": sum(losses[name] for name in LOST),
        "top": names_of(report),
        # A program that did most of the work, and of which nothing was recorded.
        "unrecorded": os.path.basename((report["recording"].get("unrecorded_program") or {"path": ""})["path"]),
    }


class Collection:
    """One binary, one folder."""

    def __init__(self, root, numapilot, folder, pairs, say):
        self.root, self.numapilot, self.folder, self.pairs, self.say = root, os.path.abspath(numapilot), os.path.abspath(folder), pairs, say
        self.unpacked = os.path.join(self.folder, "root")
        os.makedirs(self.unpacked, exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def environment(self, server):
        other = server.user if server.user and os.geteuid() == 0 else ""
        return {
            **packages.environment(self.unpacked, packages.python(server.python, self.unpacked)),
            "HOME": self.path(server.name),
            "DIR": self.path(server.name, "run"),
            "OUT": self.path(server.name),
            "PORT": str(free_port()),
            "PROGRAMS": os.path.join(self.root, "servers", "programs"),
            "NUMAPILOT": self.numapilot,
            "USER": pwd.getpwuid(os.geteuid()).pw_name,
            "AS": f"setpriv --reuid={other} --regid={pwd.getpwnam(other).pw_gid} --clear-groups" if other else "",
        }

    def prepare(self, server, environment):
        """Its folder as each run begins with it."""
        shutil.rmtree(self.path(server.name), ignore_errors=True)
        os.makedirs(environment["DIR"])
        if environment["AS"]:
            for folder in (environment["DIR"], environment["OUT"]):
                os.chown(folder, pwd.getpwnam(server.user).pw_uid, pwd.getpwnam(server.user).pw_gid)
        self.shell(server.prepare, environment, server.limit)
        subprocess.run(["cp", "-a", environment["DIR"], self.path(server.name, "prepared")], check=True)

    def shell(self, script, environment, limit):
        try:
            done = subprocess.run(["sh", "-ec", script], env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired as error:
            raise fetch.Failed(f"still running after {limit} s: {script.strip().splitlines()[0]}") from error
        if done.returncode != 0:
            raise fetch.Failed(f"exit status {done.returncode}: {(done.stderr or done.stdout)[-600:].strip()}")
        return done.stdout

    def command(self, server, engine, environment):
        own = environment if engine in ("native", "attach") else {**environment, "AS": ""}
        words = ["sh", "-c", TIMED, "sh", *shlex.split(string.Template(server.run).substitute(own))]
        if engine in ("native", "attach"):
            return words
        machine = ["--machine", MACHINE] if engine == "emulate" else []
        # As the server's user: what changes the user after the recorder has started cannot load the tracker.
        return [*environment["AS"].split(), self.numapilot, "record", "--engine", engine, *machine, "-o", environment["TRACE"], "--", *words]

    def once(self, server, engine, environment):
        """One run: what all of it took, and of that the server's own processor time in seconds."""
        folder = environment["DIR"]
        shutil.rmtree(folder)
        subprocess.run(["cp", "-a", self.path(server.name, "prepared"), folder], check=True)
        out, err = self.path(server.name, engine + ".out"), self.path(server.name, engine + ".err")
        limit = server.limit * (4 if engine == "emulate" else 1)
        command = self.command(server, engine, environment)
        if server.ask or engine == "attach":
            took = steps.run_with_client(command, client_script(server, engine), self.path(server.name), environment, out, err, limit)
        else:
            took = steps.run(command, self.path(server.name), environment, out, err, limit)
        if took.status != 0:
            raise fetch.Failed(f"{took.problem or f'exit status {took.status}'}: {steps.tail(err)}")
        with open(os.path.join(folder, "times"), encoding="utf-8") as file:
            return took, children_s(file.read())

    def measured(self, server, engine, environment):
        """Pairs of runs, native and recorded, in turn; and the last recording's report."""
        requests = server.emulated if engine == "emulate" else server.requests
        trace = self.path(server.name, f"{engine}.numatrace")
        environment = {**environment, "REQUESTS": str(requests), "TRACE": trace}
        native, recorded = [], []
        for _ in range(1 if engine == "emulate" else self.pairs):
            native.append(self.once(server, "native", environment))
            shutil.rmtree(trace, ignore_errors=True)
            recorded.append(self.once(server, engine, environment))
        ratios = [with_it / max(without_it, 0.01) for (_, with_it), (_, without_it) in zip(recorded, native)]
        told = self.shell('"$NUMAPILOT" report --json "$TRACE"', environment, server.limit)
        files.write(self.path(server.name, f"{engine}.json"), told)
        return {
            "requests": requests,
            "ratios": sorted(ratios),
            "ratio": statistics.median(ratios),
            "native_s": statistics.median(server_s for _, server_s in native),
            # The recorder's own: writing the trace, names of functions. Attached, it is a process of its own, which is not seen.
            "recorder_s": None if engine == "attach" else statistics.median(took.cpu_s - server_s for took, server_s in recorded),
            "memory": max(took.rss_kib for took, _ in recorded) / max(1, min(took.rss_kib for took, _ in native)),
            **summary(json.loads(told)),
        }

    def all_of(self, server, engines):
        """Everything about one server; what fails is a row with its reason."""
        kept = {"name": server.name, "load": server.load, "version": "", "failed": "", "engines": {}}
        try:
            packages.unpack(server.packages, self.unpacked)
            environment = self.environment(server)
            kept["version"] = (self.shell(server.version, environment, 60).strip().splitlines() or [""])[0]
            self.prepare(server, environment)
        except fetch.Failed as error:
            kept["failed"] = str(error)
        for engine in [] if kept["failed"] else engines:
            if engine == "emulate" and server.emulated == 0:
                continue
            try:
                kept["engines"][engine] = self.measured(server, engine, environment)
            except fetch.Failed as error:
                kept["engines"][engine] = {"failed": str(error)}
            self.say(f"{server.name}: {engine}: {kept['engines'][engine].get('failed') or 'ok'}")
        files.write(self.path("results", f"{server.name}.json"), json.dumps(kept, indent=1) + "\n")
        return kept
