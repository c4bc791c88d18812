"""Unit tests of the benchmarks' tools (tools/bench, tools/benchmarks): statistics, tables, the page, and a comparison of two revisions of a project that is
made here, with a cargo that builds nothing. Run by crates/cli/tests/speed_guard.rs."""

import contextlib
import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from unittest import mock

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import loading  # noqa: E402
from benchmarks import analysis, comparison, figures, page, ratios  # noqa: E402
from benchmarks.figures import Figure  # noqa: E402


def time_of(value, name="join", unit="s", better="less"):
    return Figure("offline", name, value, unit, better)


def rows_of(pairs, **more):
    return ratios.rows([("offline", [time_of(old, **more)], [time_of(new, **more)]) for old, new in pairs])


class Statistics(unittest.TestCase):
    def test_intervals_are_those_of_order_statistics(self):
        # 1 - 2 / 2^6, and 1 - 2 (1 + 10) / 2^10: tables of the sign test have them.
        self.assertEqual(ratios.interval_of_median([3, 1, 2, 6, 5, 4]), ratios.Interval(1, 6, 0.96875))
        self.assertEqual(ratios.interval_of_median(range(10)), ratios.Interval(1, 8, 1 - 22 / 1024))

    def test_fewer_than_six_values_have_none(self):
        for count in range(6):
            self.assertIsNone(ratios.interval_of_median(range(count)))

    def test_intervals_hold_the_median_as_often_as_they_say(self):
        seed = 20261128
        draw, held, tries = random.Random(seed), 0, 4000
        for _ in range(tries):
            # Skewed, as times on a busy machine are; the median of this distribution is 1.
            found = ratios.interval_of_median([draw.expovariate(1) / 0.6931471805599453 for _ in range(10)])
            held += found.low <= 1 <= found.high
        expected, spread = found.confidence, (found.confidence * (1 - found.confidence) / tries) ** 0.5
        self.assertLess(abs(held / tries - expected), 4 * spread, f"seed {seed}")

    def test_a_slower_revision_is_found_and_a_faster_one(self):
        noise = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0]
        slower, = rows_of([(each, 1.2 * each * other) for each, other in zip(noise, noise[::-1])])
        self.assertEqual(slower.verdict, ratios.SLOWER)
        self.assertTrue(slower.is_slower_by(0.05))
        self.assertFalse(slower.is_slower_by(0.3))
        faster, = rows_of([(each, 0.8 * each) for each in noise])
        self.assertEqual(faster.verdict, ratios.FASTER)
        self.assertFalse(faster.is_slower_by(0))

    def test_what_noise_explains_is_no_difference(self):
        same, = rows_of([(1, 1.3), (1, 0.8), (1, 1.2), (1, 0.9), (1, 1.25), (1, 1.1)])
        self.assertEqual(same.verdict, ratios.SAME)
        self.assertFalse(same.is_slower_by(0.05), "its median is above, its interval is not")

    def test_one_outlier_of_ten_pairs_changes_no_verdict(self):
        row, = rows_of([(1, 1.1)] * 9 + [(1, 0.01)])
        self.assertEqual(row.verdict, ratios.SLOWER)

    def test_a_lower_rate_is_slower(self):
        row, = rows_of([(5.0, 4.0)] * 6, unit="million accesses/s", better="more")
        self.assertEqual((row.verdict, row.ratio), (ratios.SLOWER, 1.25))

    def test_sizes_are_larger_and_count_as_well(self):
        row, = rows_of([(100, 110)] * 6, unit="bytes")
        self.assertEqual(row.verdict, "larger")
        self.assertTrue(row.is_slower_by(0.05))

    def test_a_figure_of_nothing_has_no_ratio(self):
        row, = rows_of([(0, 1)] * 6)
        self.assertEqual((row.ratio, row.interval, row.verdict), (None, None, ratios.TOO_FEW))

    def test_too_few_pairs_give_no_verdict(self):
        row, = rows_of([(1, 2)] * 5)
        self.assertEqual(row.verdict, ratios.TOO_FEW)
        self.assertFalse(row.is_slower_by(0.05))

    def test_figures_of_one_side_and_those_that_are_no_costs(self):
        runs = [("offline", [time_of(1), time_of(9, "chase", better="neither")], [time_of(1), time_of(2, "new one")])] * 6
        first, second = ratios.rows(runs)
        self.assertEqual((first.name, first.verdict), ("join", ratios.SAME))
        self.assertEqual((second.name, second.old, second.new, second.verdict), ("new one", None, 2, "only in the new one"))


class Tables(unittest.TestCase):
    def test_the_table_has_a_line_for_each_figure(self):
        rows = rows_of([(2.0, 2.5)] * 6) + rows_of([(3, 3)] * 6, name="walk")
        text = ratios.table(rows).splitlines()
        self.assertEqual(text[0].split(), ["benchmark", "old", "new", "ratio", "(interval)", "verdict"])
        self.assertEqual(text[1].split(), ["offline:", "join", "2.00", "s", "2.50", "s", "1.250", "(1.250", "to", "1.250)", "slower"])
        self.assertTrue(text[2].endswith("no difference seen"))

    def test_the_legend_names_what_is_over_the_limit(self):
        rows = rows_of([(2.0, 2.5)] * 6)
        self.assertIn("Worse by more than 5.0%: offline: join (1.250).", ratios.legend(rows, 0.05))
        self.assertIn("Worse by more than 30.0%: none.", ratios.legend(rows, 0.3))

    def test_values_have_three_digits(self):
        words = [figures.shown(value, "s") for value in (0.0123456, 1.23456, 12.3456, 1234.56, 0, -4.5)]
        self.assertEqual(words, ["0.0123 s", "1.23 s", "12.3 s", "1,235 s", "0.00 s", "-4.50 s"])

    def test_the_status_is_of_the_worst(self):
        bench, slow, same = loading.tool("bench"), rows_of([(1, 1.2)] * 6), rows_of([(1, 1)] * 6)
        failed = {is_new: comparison.Failed("import", "no perf", is_new) for is_new in (False, True)}
        self.assertEqual(bench.status_of(slow + same, [], 0.05), 1)
        self.assertEqual(bench.status_of(slow + same, [], 0.25), 0)
        self.assertEqual(bench.status_of(same, [failed[False]], 0.05), 0)
        self.assertEqual(bench.status_of(same, [failed[True]], 0.05), 1)
        self.assertEqual(bench.status_of([], [], 0.05), 2)

    def test_limits_are_percentages(self):
        bench = loading.tool("bench")
        self.assertEqual([bench.percent(text) for text in ("5%", "7.5 %", "0")], [0.05, 0.075, 0])
        for wrong in ("", "x", "-1", "nan", "inf"):
            self.assertRaises(Exception, bench.percent, wrong)


class Turns(unittest.TestCase):
    def test_each_side_comes_first_as_often_as_second(self):
        order = [side for number in range(4) for side in comparison.orders(number)]
        for places in (order[0::2], order[1::2], order[0::4], order[3::4]):
            self.assertEqual(places.count("old"), places.count("new"))

    def test_a_steady_drift_favours_nobody(self):
        class Side:
            clock = 0

            def measure_one(self, _):
                Side.clock += 1
                return [time_of(100 + Side.clock)]

        runs, failed = comparison.compare({"old": Side(), "new": Side()}, ["offline"], 5, lambda _: None)
        row, = ratios.rows(runs)
        self.assertEqual((len(runs), failed, row.verdict), (10, [], ratios.SAME))

    def test_a_benchmark_that_fails_is_left_alone_and_the_others_go_on(self):
        class Side:
            def __init__(self, breaks):
                self.breaks, self.asked = breaks, []

            def measure_one(self, name):
                self.asked.append(name)
                if name == self.breaks:
                    sys.exit("bench: no such option")
                return [time_of(1)]

        sides = {"old": Side(""), "new": Side("import")}
        runs, failed = comparison.compare(sides, ["import", "offline"], 3, lambda _: None)
        self.assertEqual({name for name, *_ in runs}, {"offline"})
        self.assertEqual([str(one) for one in failed], ["import: on the new revision: no such option"])
        self.assertEqual(sides["new"].asked.count("import"), 1)


OUTPUTS = {
    "offline_rate": "finalise: 5000000 accesses in 1.60 s: 3.12 million/s, 4990 locations\nfinalise: 450 ns of CPU time per access\n"
                    "at rest: 11.9 bytes per access\nopen: 9.50 million/s\niterate: 310 million/s (77 remote)\n",
    "dictionary_rate": "1048576 values of each column; medians of 5 rounds of 16, both sides in turn\n"
                       "thread                 3.1         22.4     7.2           10            12\n"
                       "weight             refused         30.1                             99\nall of a row          41.5        180.2     4.3\n",
    "speed": "first-touch   48 threads, 8 nodes,  4.2 million pages: 60 s in 7.25 s, 8 simulated seconds per second; 1 epochs, 2 solutions, 3 pages moved\n"
             "carrefour     16 threads, 4 nodes,  0.3 million pages: 60 s in 0.50 s, 120 simulated seconds per second; 1 epochs, 2 solutions, 3 pages moved\n",
}
GROUP_BYS = """way                         start                  matrix                 objects                   pages  pandas / it
numapilot query              0.00        0.50 (0.45-0.60)      0.40 (0.35-0.50)      2.60 (2.50-2.80)          4.1
DuckDB                       0.12        0.25 (0.24-0.26)      0.26 (0.25-0.27)      1.24 (1.20-1.30)          8.0
"""
FLEET = """ hosts engine     seconds     MiB   from opening the fleet to the answers of fleet-remote, fleet-types
  1000 ours          4.10     310   1014 rows, the reference
  1000 duckdb        5.20       -   1014 rows, the same bytes
"""


class Readings(unittest.TestCase):
    """What is read from the output of what a benchmark runs: a pattern that does not fit would leave a figure out without a word."""

    def found(self, benchmark, output=""):
        class Bench(analysis.Analysis):
            def example(self, package, name, *features):
                return OUTPUTS[name]

            def peers(self):
                return "python3"

            def query_tool(self):
                return "numapilot-query"

            def big_trace(self):
                return "big.numatrace"

            def cargo(self, *words):
                return ""

        bench = Bench("numapilot", "build")
        self.addCleanup(bench.close)
        with mock.patch.object(analysis, "run", lambda *_, **__: output), contextlib.redirect_stdout(io.StringIO()):
            figures = bench.measure_one(benchmark)
        return {one.name: (one.value, one.unit, one.better, one.peer_value) for one in figures}

    def test_joining_and_opening(self):
        rate = "million accesses/s"
        self.assertEqual(self.found("offline"), {
            "chunks to a trace": (3.12, rate, "more", None),
            "CPU time of an access": (450, "ns", "less", None),
            "an access at rest": (11.9, "bytes", "less", None),
            "opening a trace": (9.5, rate, "more", None),
            "walking a trace": (310, rate, "more", None),
        })

    def test_dictionaries_beside_their_peer(self):
        self.assertEqual(self.found("dictionary"), {"dictionary columns of a row": (41.5, "ns", "less", 180.2)})

    def test_simulated_minutes(self):
        self.assertEqual(self.found("simulate"), {
            "a minute under first-touch, 48 threads, 8 nodes, 4.2 million pages": (7.25, "s", "less", None),
            "a minute under carrefour, 16 threads, 4 nodes, 0.3 million pages": (0.5, "s", "less", None),
        })

    def test_group_bys_beside_their_peer(self):
        self.assertEqual(self.found("query", GROUP_BYS), {
            "group by matrix": (0.5, "s", "less", 0.25),
            "group by objects": (0.4, "s", "less", 0.26),
            "group by pages": (2.6, "s", "less", 1.24),
        })

    def test_time_and_memory_of_a_fleet(self):
        self.assertEqual(self.found("fleet", FLEET), {
            "two questions to 1000 hosts": (4.1, "s", "less", None),
            "memory for 1000 hosts": (310, "MiB", "less", None),
        })

    def test_every_figure_of_the_page_is_one_that_a_benchmark_gives(self):
        kept = {(entry["benchmark"], entry["name"]) for entry in page.load()}
        for benchmark, output in (("offline", ""), ("dictionary", ""), ("simulate", ""), ("query", GROUP_BYS), ("fleet", FLEET)):
            for name in self.found(benchmark, output):
                self.assertIn((benchmark, name), kept)


ENTRIES = [
    {"benchmark": "offline", "name": "join", "unit": "s", "value": None, "goal": "1"},
    {"benchmark": "top", "name": "CPU", "unit": "%", "value": 2.0, "date": "2026-11-01", "machine": "M", "source": "docs/watch.md"},
]


class Page(unittest.TestCase):
    def test_a_run_replaces_its_figures_and_no_others(self):
        about = {"date": "2026-11-28", "machine": "Box", "command": "tools/bench NUMAPILOT BUILD offline", "revision": "abc"}
        entries = page.merged(ENTRIES, [time_of(0.5), time_of(3, "walk")], about)
        self.assertEqual([(entry["name"], entry["value"]) for entry in entries], [("join", 0.5), ("walk", 3), ("CPU", 2.0)])
        text = page.table(entries)
        self.assertIn("| join | 0.500 s |  |  | 2026-11-28; Box; revision abc |", text)
        self.assertIn("| CPU | 2.00 % |  |  | 2026-11-01; M; docs/watch.md |", text)

    def test_what_was_not_measured_says_so(self):
        self.assertIn(f"| join | {page.NOT_MEASURED} | 1 |  |  |", page.table(ENTRIES))

    def test_a_page_without_marks_is_not_written_over(self):
        self.assertRaises(ValueError, page.with_table, "# Speed\n", ENTRIES)

    def test_the_page_has_the_figures_that_are_kept(self):
        text = pathlib.Path(page.PAGE).read_text(encoding="utf-8")
        self.assertEqual(page.with_table(text, page.load()), text, "tools/benchmarks/measured.json was changed without the page, or the page by hand")

    def test_a_measured_figure_says_when_and_where(self):
        for entry in page.load():
            if entry["value"] is not None:
                self.assertTrue(entry["date"] and entry["machine"] and entry["command"], entry)

    def test_a_run_that_was_kept_as_json_renews_the_page(self):
        with tempfile.TemporaryDirectory() as folder:
            run, kept, text = (os.path.join(folder, name) for name in ("run.json", "kept.json", "page.md"))
            pathlib.Path(run).write_text(figures.as_json([time_of(0.5)], {"date": "2026-11-28", "machine": "Box"}))
            pathlib.Path(kept).write_text(page.as_json(ENTRIES))
            pathlib.Path(text).write_text(f"# Speed\n\n{page.BEGIN}\n{page.END}\n\nMore.\n")
            page.renew(*page.figures_of(run), text, kept)
            self.assertEqual(page.load(kept)[0]["value"], 0.5)
            written = pathlib.Path(text).read_text()
            self.assertIn("| join | 0.500 s |", written)
            self.assertTrue(written.endswith("\n\nMore.\n"))


# Builds by copying a script, and "runs" the example by starting it. What a revision's figures are stands in its file `seconds`.
CARGO = """#!/usr/bin/env python3
import os, pathlib, sys, time
words, tree = sys.argv[1:], pathlib.Path.cwd()
target = pathlib.Path(os.environ["CARGO_TARGET_DIR"])
with open(os.environ["CARGO_LOG"], "a") as log:
    log.write(words[0] + " " + (tree / "seconds").read_text())
if words[0] == "build":
    if "CARGO_HANGS" in os.environ:
        pathlib.Path(os.environ["CARGO_HANGS"]).write_text(str(os.getpid()))
        time.sleep(600)
    program = target / "release" / "numapilot"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\\n")
    program.chmod(0o755)
    sys.exit()
seconds = float((tree / "seconds").read_text())
if seconds < 0:
    sys.exit("the example is broken")
print(f"finalise: 10 accesses in {seconds} s: {10 / seconds:.4f} million/s, 3 locations")
print(f"at rest: 7.0 bytes per access")
"""


class Guard(unittest.TestCase):
    """Two revisions of a project that has nothing but these tools: the older needs 1 s."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name, "project")
        self.bin = pathlib.Path(folder.name, "bin")
        self.bin.mkdir()
        (self.bin / "cargo").write_text(CARGO)
        (self.bin / "cargo").chmod(0o755)
        shutil.copytree(FOLDER / "benchmarks", self.root / "tools" / "benchmarks", ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("bench", "host.py", "files.py"):
            shutil.copy(FOLDER / name, self.root / "tools" / name)
        (self.root / ".gitignore").write_text("/build\n/target\n")
        self.log = pathlib.Path(folder.name, "log")
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "CARGO_"))}
        self.environment |= {"PATH": f"{self.bin}:{os.environ['PATH']}", "CARGO_LOG": str(self.log), "GIT_CONFIG_GLOBAL": os.devnull}
        self.git("init", "--quiet")
        self.commit("1.0")

    def git(self, *words):
        names = ["-c", "user.name=n", "-c", "user.email=n@localhost"]
        return subprocess.run(["git", *names, *words], cwd=self.root, env=self.environment, check=True, stdout=subprocess.PIPE, text=True).stdout

    def commit(self, seconds):
        (self.root / "seconds").write_text(f"{seconds}\n")
        self.git("add", "-A")
        self.git("commit", "--quiet", "-m", "another")

    def begun(self, process, mark):
        """The process of the fake cargo that hangs, once it does."""
        deadline = time.monotonic() + 60
        while process.poll() is None and time.monotonic() < deadline:
            if mark.exists() and mark.read_text():
                return int(mark.read_text())
            time.sleep(0.01)
        process.kill()
        self.fail("nothing was built")

    def words(self, *words):
        program = self.root / "target" / "release" / "numapilot"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        return [sys.executable, str(self.root / "tools" / "bench"), str(program), str(self.root / "build"), *words]

    def compare(self, *words):
        return subprocess.run(self.words(*words), env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def assert_nothing_is_left(self):
        self.assertFalse((self.root / "build" / "compare").exists())
        self.assertEqual(len(self.git("worktree", "list").splitlines()), 1)
        self.assertEqual(self.git("status", "--porcelain"), "")

    def test_a_slower_revision_fails_the_run(self):
        self.commit("1.25")
        out = self.root / "build" / "found.json"
        done = self.compare("offline", "--compare", "HEAD~1", "--rounds", "3", "--json", str(out))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"offline: chunks to a trace +10\.0 million accesses/s +8\.00 million accesses/s +1\.250 \(1\.250 to 1\.250\) +slower")
        self.assertRegex(done.stdout, r"offline: an access at rest .* no difference seen")
        self.assertRegex(done.stderr, r"will need about [0-9.]+ GiB")
        self.assertRegex(done.stderr, r"is built: [0-9.]+ GiB")
        self.assertIn("round 3 of 3: offline", done.stderr)
        rows = json.loads(out.read_text())["rows"]
        self.assertEqual([row["is_over_limit"] for row in rows], [True, False])
        self.assertEqual(rows[0]["pairs"], 6)
        runs = [line.split()[1] for line in self.log.read_text().splitlines() if line.startswith("run")]
        self.assertEqual(runs, ["1.0", "1.25", "1.25", "1.0", "1.25", "1.0", "1.0", "1.25", "1.0", "1.25", "1.25", "1.0"])
        self.assert_nothing_is_left()

    def test_a_faster_one_and_one_within_the_limit_do_not(self):
        self.commit("0.8")
        done = self.compare("offline", "--compare", "HEAD~1", "--rounds", "3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("faster", done.stdout)
        self.commit("0.9")
        done = self.compare("offline", "--compare", "HEAD~1", "--rounds", "3", "--limit", "20%")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("slower", done.stdout)

    def test_a_benchmark_that_only_the_old_revision_can_run_fails(self):
        self.commit("-1")
        done = self.compare("offline", "--compare", "HEAD~1", "--rounds", "3")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("NOT COMPARED: offline: on the new revision:", done.stdout)
        self.assertIn("the example is broken", done.stdout)
        self.assert_nothing_is_left()

    def test_unknown_revisions_and_missing_programs_are_told_before_anything_is_built(self):
        done = self.compare("offline", "--compare", "no-such-branch")
        self.assertIn("--compare no-such-branch: no such revision", done.stderr)
        self.assertNotEqual(done.returncode, 0)
        words = self.words("offline", "--compare", "HEAD")
        words[2] += "-missing"
        done = subprocess.run(words, env=self.environment, stderr=subprocess.PIPE, text=True)
        self.assertIn("numapilot-missing: no such program", done.stderr)
        self.assertFalse(self.log.exists())

    def test_an_interrupted_comparison_leaves_nothing(self):
        self.commit("1.25")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            began, out = self.root.parent / "began", self.root / "build" / "found.json"
            self.environment["CARGO_HANGS"] = str(began)
            words = self.words("offline", "--compare", "HEAD~1", "--json", str(out))
            process = subprocess.Popen(words, env=self.environment, stderr=subprocess.PIPE, text=True)
            builder = self.begun(process, began)
            self.assertTrue((self.root / "build" / "compare" / "tree" / "seconds").exists())
            process.send_signal(number)
            _, said = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, said)
            self.assertRaises(ProcessLookupError, os.kill, builder, 0)
            self.assertFalse(out.exists())
            self.assert_nothing_is_left()
            began.unlink()

    def test_what_a_killed_comparison_left_is_removed_by_the_next_and_two_do_not_share_a_folder(self):
        self.commit("1.01")
        began = self.root.parent / "began"
        process = subprocess.Popen(self.words("offline", "--compare", "HEAD~1"), env=self.environment | {"CARGO_HANGS": str(began)}, stderr=subprocess.PIPE)
        builder = self.begun(process, began)
        try:
            done = self.compare("offline", "--compare", "HEAD~1")
            self.assertIn("another comparison runs in", done.stderr)
        finally:
            process.kill()
            os.kill(builder, signal.SIGKILL)
            process.communicate()
        self.assertTrue((self.root / "build" / "compare" / "tree").exists())
        done = self.compare("offline", "--compare", "HEAD~1", "--rounds", "3")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assert_nothing_is_left()

    def test_a_run_of_one_revision_writes_its_figures(self):
        out = self.root / "build" / "figures.json"
        done = self.compare("offline", "--json", str(out))
        self.assertEqual(done.returncode, 0, done.stderr)
        data = json.loads(out.read_text())
        found = [(one["name"], one["value"], one["better"]) for one in data["figures"]]
        self.assertEqual(found, [("chunks to a trace", 10, "more"), ("an access at rest", 7, "less")])
        self.assertEqual(data["revision"], self.git("describe", "--always").strip())

    def test_a_benchmark_that_fails_keeps_no_other_from_being_measured(self):
        out = self.root / "build" / "figures.json"
        # The library that `flows` needs is not in this project.
        done = self.compare("flows", "offline", "--json", str(out))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("FAILED: flows:", done.stdout)
        self.assertEqual([one["benchmark"] for one in json.loads(out.read_text())["figures"]], ["offline", "offline"])


if __name__ == "__main__":
    unittest.main()
