"""Holds the experiments' scripts to a tiny answer of `numapilot simulate --json`, whose path the environment names in SIMULATE_JSON.

Run by crates/cli/tests/experiments.rs, which makes that answer. Nothing here judges the simulator's figures.
"""

import contextlib
import dataclasses
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import unittest
from xml.etree import ElementTree

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.join(os.path.dirname(FOLDER), "tools")]
sys.dont_write_bytecode = True

import authors  # noqa: E402
import figures  # noqa: E402
import files  # noqa: E402
import judge  # noqa: E402
import loading  # noqa: E402
import loop  # noqa: E402
import page  # noqa: E402
import plan  # noqa: E402
import plots  # noqa: E402
import runner  # noqa: E402
import svg  # noqa: E402
import variants  # noqa: E402


def answer(speeds):
    """The answer that was made, with run times changed so that each policy's speed over first touch is known."""
    with open(os.environ["SIMULATE_JSON"], encoding="utf-8") as file:
        made = runner.trimmed(json.load(file))
    like = json.dumps(made["runs"][0])
    made["runs"] = [json.loads(like) for _ in speeds]
    for run, (policy, speed) in zip(made["runs"], speeds.items()):
        run.update(policy=policy, run_time_ns=1e10 / speed)
    return made


def study(results, policies):
    return plan.Study(results, policies, 5.0, 3)


class Figures(unittest.TestCase):
    def test_a_real_answer_is_understood(self):
        with open(os.environ["SIMULATE_JSON"], encoding="utf-8") as file:
            made = json.load(file)
        for run, gain in zip(made["runs"], made["gains"]):
            base, one = figures.Run(made["runs"][0]), figures.Run(run)
            self.assertAlmostEqual(one.gain_over(base), gain, places=9)
            self.assertTrue(0 <= one.local <= 1 and one.latency_cycles > 0 and one.seconds > 0, run["policy"])

    def test_means_worst_and_regret(self):
        runs = study({
            "program/pca": answer({"first-touch": 1.0, "interleave": 2.0, "optimum": 2.5}),
            "program/is": answer({"first-touch": 1.0, "interleave": 0.5, "optimum": 1.0}),
        }, ["first-touch", "interleave", "optimum"]).programs
        row = figures.summary(runs, ["interleave"], "first-touch", "optimum")[0]
        self.assertAlmostEqual(row["mean"], 0.0)
        self.assertAlmostEqual(row["worst"][0], -0.5)
        self.assertEqual(row["worst"][1], "is")
        self.assertAlmostEqual(row["regret"], (0.25 + 1.0) / 2)
        self.assertAlmostEqual(row["most"][0], 1.0)
        self.assertIsNone(figures.summary(runs, ["interleave"], "first-touch", "absent")[0]["regret"])

    def test_a_run_that_was_cut_off_counts_by_what_it_got_done(self):
        made = answer({"first-touch": 1.0, "interleave": 1.0})["runs"]
        made[1]["progress"] = made[0]["progress"] / 2
        self.assertAlmostEqual(figures.Run(made[1]).gain_over(figures.Run(made[0])), -0.5)


class Judgement(unittest.TestCase):
    published = judge.load(os.path.join(FOLDER, "published.toml"))

    def test_signs(self):
        gains = (0.2, 0.04, -0.04, -0.2)
        for published, agree in (
            ("gain", (True, True, False, False)),
            (0.082, (True, True, False, False)),
            ("loss", (False, False, True, True)),
            (-0.22, (False, False, True, True)),
            # Only where the authors say so does a small gain or loss count as none.
            ("unchanged", (False, True, True, False)),
            ("no loss", (True, True, True, False)),
        ):
            self.assertEqual(tuple(judge.sign_agrees(published, gain, 0.05) for gain in gains), agree, published)

    def test_a_wrong_order_sign_and_bound_are_named(self):
        everything = study({
            "program/streamcluster": answer({"first-touch": 1.0, "interleave": 3.0, "carrefour": 1.5, "carrefour-as-coded": 2.8}),
            "program/bt": answer({"first-touch": 1.0, "interleave": 1.2, "carrefour": 0.9}),
        }, plan.POLICIES)
        said = "\n".join(judge.missed(everything, self.published))
        self.assertIn("Order of `streamcluster`: published first-touch < interleave < carrefour, ours first-touch < carrefour < interleave", said)
        self.assertIn("Sign of `bt`, interleave: published loss, ours +20.0 %", said)
        self.assertIn("Sign of `bt`, carrefour: published no loss, ours -10.0 %", said)
        self.assertIn("Bound of carrefour: published never more than 4 % worse than first touch, ours -10.0 % (`bt`)", said)
        self.assertIn("Size of `streamcluster`, interleave, gain: published +100 %, ours +200.0 %, +100 points off", said)
        self.assertNotIn("carrefour-as-coded", said)
        rows = {(row.program, row.policy): row for row in judge.figures_and_signs(everything, self.published)}
        self.assertAlmostEqual(rows["streamcluster", "interleave"].error, 1.0)
        self.assertAlmostEqual(rows["streamcluster", "carrefour-as-coded"].error, 0.0)

    def test_fixes_are_compared_with_the_program_as_it_was(self):
        cases = study({
            "memprof/psearchy/before": answer({"first-touch": 1.0, "interleave": 0.78}),
            "memprof/psearchy/after": answer({"first-touch": 1.1}),
        }, plan.POLICIES)
        rows = {(row.what, row.policy): row for row in judge.fixes(cases, self.published)}
        self.assertAlmostEqual(rows["gain", "local allocation"].error, 0.018)
        self.assertAlmostEqual(rows["gain", judge.EVERYTHING].error, 0.0)
        cases.fixes["psearchy"][0]["interleave"].speed *= 2
        self.assertIn("Order of `psearchy`: published that local allocation beats everything interleaved", "\n".join(judge.missed(cases, self.published)))

    def test_simulations_and_predictions_are_of_the_same_recordings(self):
        groups = [asks for entry in self.published["sign"] for asks, _ in plan.asked("sign", entry)]
        asked = {(ask.program, ask.variant, ask.machine, ask.arguments) for ask, *_ in groups}
        run = plan.jobs(list(plan.PROGRAMS), plan.POLICIES, 5.0, 3, False)
        simulated = {(job.program, job.variant, job.recorded_on, job.arguments) for job in run}
        self.assertEqual(asked - simulated, set())
        # IS has no more than its ten rankings: repeated, they would give a policy time that it does not have.
        repeated = {job.program: "--for" in job.options for job in run if job.label.startswith("program/")}
        self.assertEqual([program for program in repeated if not repeated[program]], ["is"])

    def test_a_program_has_another_size_only_where_its_paper_ran_another_program(self):
        entries = [entry for kind in ("figure", "sign", "fix") for entry in self.published[kind] if entry["program"] == "facerec"]
        self.assertEqual({entry["source"] for entry in entries}, {"carrefour", "memprof"})
        for entry in entries:
            is_long = entry.get("note") == "FaceRecLong"
            machine = plan.MACHINE if entry["source"] == "carrefour" else plan.MEMPROF_MACHINE
            self.assertEqual(is_long, machine == plan.MACHINE, entry)
            self.assertEqual("medium" in plan.arguments_of("facerec", machine), is_long, entry)

    def test_every_published_statement_belongs_to_something_that_is_run(self):
        for kind in ("figure", "sign", "fix"):
            for entry in self.published[kind]:
                self.assertIn(entry["program"], plan.FIXED if kind == "fix" else plan.PROGRAMS)
                self.assertIn(entry.get("policy", plan.BASE), plan.POLICIES)


def prediction(median, low, high):
    source = {"place": "program.own_work", "words": "own work", "range": [1, 0.5, 2], "share": 0.75, "narrowed_by": ""}
    return {"gain": median, "gain_low": low, "gain_high": high, "uncertainty": {"median": median, "likely": [low, high], "sources": [source]}}


class Predictions(unittest.TestCase):
    published = judge.load(os.path.join(FOLDER, "published.toml"))

    def test_each_published_gain_of_a_placement_is_asked_for_and_none_of_a_daemon(self):
        asked = [one for kind in ("figure", "sign", "fix") for entry in self.published[kind] for one in plan.asked(kind, entry)]
        gains = [entry for entry in self.published["figure"] if entry["metric"] == "gain" and entry["policy"] == "interleave"]
        signs = [entry for entry in self.published["sign"] if entry["policy"] == "interleave"]
        self.assertEqual(len(asked), len(gains) + len(signs) + 2 * len(self.published["fix"]))

    def of_streamcluster(self):
        [fix] = [entry for entry in self.published["fix"] if entry["program"] == "streamcluster"]
        return plan.asked("fix", fix)

    def test_a_gain_with_a_figure_is_predicted_for_each_configuration_that_may_have_been(self):
        for kind in ("figure", "sign", "fix"):
            for entry in self.published[kind]:
                for asks, _ in plan.asked(kind, entry):
                    self.assertAlmostEqual(sum(ask.weight for ask in asks), 1.0)
                    self.assertEqual(len({ask.label for ask in asks}), len(asks), "kept apart")
                    self.assertEqual(len(asks) > 1, kind != "sign", entry)
                    for ask in asks:
                        self.assertEqual(ask.arguments[:1], plan.WHOLE)

    def test_predictions_of_several_inputs_are_one_that_any_of_them_may_be(self):
        # Three that do not overlap: the median is of the middle one, and the ends are where a twentieth of all is beyond, three twentieths of one of them.
        low, median, high = figures.mixture([prediction(0.5, 0.4, 0.6), prediction(0.1, 0.0, 0.2), prediction(1.0, 0.8, 1.2)])
        self.assertAlmostEqual(median, 0.5)
        self.assertAlmostEqual(low, 0.0 + 0.1 * (0.15 - 0.05) / 0.45)
        self.assertAlmostEqual(high, 1.2 - 0.2 * (0.15 - 0.05) / 0.45)
        # Of one and the same, what each says; of one alone, to the last bit.
        same = figures.mixture([prediction(0.5, 0.4, 0.7)] * 3)
        for ours, one in zip(same, (0.4, 0.5, 0.7)):
            self.assertAlmostEqual(ours, one)
        self.assertEqual(figures.mixture([prediction(0.1, -0.3, 0.7)]), (-0.3, 0.1, 0.7))
        self.assertEqual(figures.mixture([prediction(0.2, 0.2, 0.2)] * 3)[1], 0.2)

    def test_the_likelier_of_two_predictions_counts_for_more(self):
        both = [prediction(0.5, 0.4, 0.6), prediction(0.1, 0.0, 0.2)]
        low, median, high = figures.mixture(both, [3, 1])
        # A quarter lies below 0.4: the twentieth is a fifth of it, the median a third into the other three quarters.
        self.assertAlmostEqual(low, 0.0 + 0.1 * (0.2 - 0.05) / 0.45)
        self.assertAlmostEqual(median, 0.4 + 0.1 * (1 / 3 - 0.05) / 0.45)
        self.assertAlmostEqual(high, 0.5 + 0.1 * (1 - 0.05 / 0.75 - 0.5) / 0.45)
        self.assertEqual(figures.mixture(both, [0.5, 0.5]), figures.mixture(both))
        self.assertLess(figures.share_between(both, [99, 1]), figures.share_between(both))

    def test_a_row_names_its_input_as_a_source_and_needs_all_of_them(self):
        (block, _), _ = self.of_streamcluster()
        predicted = dict(zip(block, [prediction(0.6, 0.5, 0.7), prediction(0.2, 0.1, 0.3)]))
        study = plan.Study({}, [], 5.0, 3, predicted, ["streamcluster"], "13 of 13 gains\n")
        [row] = judge.predictions(study, self.published)
        self.assertEqual((row.published, row.inside), (0.37, True))
        self.assertEqual([(part.weight, part.median) for part in row.parts], [(0.75, 0.6), (0.25, 0.2)])
        self.assertTrue(row.comes_from.startswith(f"{judge.CONFIGURATION} 8"), row.comes_from)
        text = "\n".join(page.predicted_part(study, self.published))
        self.assertIn("## Predicted, then recorded", text)
        self.assertTrue(text.endswith("13 of 13 gains\n"), text)
        self.assertIn("| native, -O3 -funroll-loops | 75 % | +60.0 | +50.0 to +70.0 |", text)
        self.assertIn("config/gcc.bldconf of PARSEC", text)
        self.assertIn(authors.digest(), text)
        self.assertIn("* `streamcluster`, everything interleaved, memprof-a: 0 of 2 configurations are predicted.", text)
        del predicted[block[1]]
        self.assertEqual(judge.predictions(study, self.published), [])
        self.assertIn("one array interleaved, memprof-a: 1 of 2 configurations", "\n".join(judge.waiting(study, self.published)))

    def test_what_lies_outside_is_said(self):
        # Published: +37 % by one array interleaved, +33 % by everything.
        *_, (block, _), (everything, _) = self.of_streamcluster()
        predicted = {ask: prediction(0.60, 0.30, 0.90) for ask in block} | {ask: prediction(0.60, 0.40, 0.80) for ask in everything}
        rows = judge.predictions(plan.Study({}, [], 5.0, 3, predicted), self.published)
        self.assertEqual([row.inside for row in rows], [True, False])
        self.assertAlmostEqual(rows[1].error, 0.27)
        text = "\n".join(page.predictions_part(rows))
        self.assertIn("1 of 2 published gains (50 %) lie inside their 90 % interval; the medians' mean absolute\nerror is 25.0 points", text)
        self.assertIn("mean width 50.0 points", text)
        self.assertIn("| +30.0 to +90.0 | 60.0 | yes |", text)
        self.assertIn("own work 75 %", text)

    def test_of_a_program_that_sleeps_the_processor_time_is_predicted(self):
        told = prediction(0.001, -0.01, 0.02)
        self.assertEqual(runner.priced({**told, "more_bytes": 0}), told)
        work = runner.priced({**told, "work_gain": {"value": 0.2, "low": 0.1, "high": 0.3}})
        self.assertEqual((work["of"], work["gain"], work["gain_low"], work["gain_high"]), (plan.PROCESSOR_TIME, 0.2, 0.1, 0.3))
        [ask] = plan.asks(["cg"], self.published)
        for answer_of_one, ends in ((work, f" ({plan.PROCESSOR_TIME})"), (told, judge.EVERYTHING)):
            [row] = judge.predictions(plan.Study({}, [], 5.0, 3, {ask: answer_of_one}), self.published)
            self.assertTrue(row.what.endswith(ends), row.what)
        self.assertIn("1 of 2 configurations", judge.of_what([work, told]))

    def test_an_interval_without_an_end_is_no_prediction(self):
        told = prediction(0.2, 0.1, 0.3)
        work = {"value": 0.2, "low": 0.1, "high": None}
        for odd in ({**told, "gain_high": None}, {**told, "uncertainty": {**told["uncertainty"], "likely": [0.1, None]}}, {**told, "work_gain": work}):
            with self.assertRaisesRegex(runner.Failed, "did not converge"):
                runner.priced(odd)

    def test_a_sign_is_judged_by_the_median(self):
        [ask] = plan.asks(["cg"], self.published)
        for median, agrees in ((-0.2, True), (0.0, False), (0.2, False)):
            [row] = judge.predictions(plan.Study({}, [], 5.0, 3, {ask: prediction(median, -0.5, 0.5)}), self.published)
            self.assertEqual((row.sign_agrees, row.inside), (agrees, None))


class Authors(unittest.TestCase):
    published = judge.load(os.path.join(FOLDER, "published.toml"))

    def test_mixtures_keep_to_their_rules(self):
        entries = [entry for kind in ("figure", "fix") for entry in self.published[kind]]
        self.assertLessEqual(set(authors.MIXTURES), {(entry["program"], entry["source"]) for entry in entries}, "of programs with published gains")
        for (program, source), kinds in authors.MIXTURES.items():
            for choices in kinds:
                self.assertEqual(len({choice.name for choice in choices}), len(choices), program)
                for choice in choices:
                    self.assertIn(choice.weight, (authors.RECOMMENDED, authors.POSSIBLE), choice)
                    self.assertTrue(choice.why, choice)
            ordered = [one.weight for one in authors.configurations(program, source)]
            self.assertEqual(ordered, sorted(ordered, reverse=True))

    def test_two_papers_have_the_same_of_a_program_but_for_its_size(self):
        for program in {program for program, _ in authors.MIXTURES}:
            of_papers = [authors.MIXTURES[key] for key in authors.MIXTURES if key[0] == program]
            weights = [[[choice.weight for choice in choices] for choices in kinds] for kinds in of_papers]
            builds = [[choice.build for choices in kinds for choice in choices] for kinds in of_papers]
            self.assertTrue(all(one == weights[0] for one in weights) and all(one == builds[0] for one in builds), program)

    def test_choices_of_different_kinds_multiply(self):
        made = authors.configurations("facerec", "carrefour")
        self.assertEqual([one.weight for one in made], [1 / 6] * 6)
        self.assertIn(("probes 2000, -O3", ("--probes", "2000"), authors.NO_VECTORS), [(one.name, one.arguments, one.build) for one in made])
        self.assertEqual(authors.configurations("cg", "carrefour"), [authors.ONLY])


class Drawn(unittest.TestCase):
    published = judge.load(os.path.join(FOLDER, "published.toml"))

    def test_machines_are_drawn_from_the_models_ranges(self):
        with open(os.path.join(plan.ROOT, "models", f"{plan.MACHINE}.toml"), encoding="utf-8") as file:
            text = file.read()
        ranges = {key: bounds for _, key, bounds in variants.ranges_of(text.split("\n")) if key in variants.DEFAULTS}
        drawn = [tomllib.loads(one) for one in variants.variants(text, plan.DRAWN)]
        self.assertEqual(len(drawn), plan.DRAWN)
        self.assertEqual(variants.variants(text, plan.DRAWN), variants.variants(text, plan.DRAWN), "one seed")
        as_described = tomllib.loads(text)
        for one in drawn:
            local, *remote = one["idle_latency"]
            self.assertTrue(local["ns"]["range"][0] <= local["ns"]["value"] <= local["ns"]["range"][1])
            for rule in remote:
                low, high = rule["over_local"]
                self.assertTrue(low - 1e-4 <= rule["ns"]["value"] / local["ns"]["value"] <= high + 1e-4, rule)
            for key, figure in one["traffic"].items():
                low, high = figure.get("range") or ranges.get(key) or (figure["value"],) * 2
                self.assertTrue(low <= figure["value"] <= high, key)
            self.assertEqual((one["nodes"], one["caches"]), (as_described["nodes"], as_described["caches"]))
        # Each range from end to end: one draw in each of its parts.
        values = sorted(one["traffic"]["stream_outstanding"]["value"] for one in drawn)
        low, high = as_described["traffic"]["stream_outstanding"]["range"]
        for part, value in enumerate(values):
            self.assertAlmostEqual((value - low) / (high - low) * plan.DRAWN, part + 0.5, delta=0.501)

    def test_a_policys_gain_has_the_least_and_the_most_of_all_machines(self):
        jobs = plan.drawn_jobs(list(plan.PROGRAMS), self.published, 5.0, [f"m{index}" for index in range(plan.DRAWN)])
        self.assertIn("streamcluster", {job.program for job in jobs})
        self.assertNotIn("psearchy", {job.program for job in jobs}, "no policy that decides while it runs is published")
        results = {"program/is": answer({"first-touch": 1.0, "interleave": 1.4, "carrefour": 1.02, "carrefour-as-coded": 1.02})}
        for job in jobs:
            if job.program == "is":
                speed = 0.9 + 0.01 * int(job.label.rsplit("/", 1)[1])
                results[job.label] = answer({"first-touch": 1.0, "interleave": 1.3, "carrefour": speed})
        rows = {row.policy: row for row in judge.figures_and_signs(study(results, plan.POLICIES), self.published)}
        self.assertEqual([round(gain, 6) for gain in rows["carrefour"].drawn], [-0.1, 0.08])
        self.assertIsNone(rows["carrefour-as-coded"].drawn, "it ran on none of them")
        self.assertIn("| -10.0 to +8.0 |", page.comparisons(list(rows.values())))
        results.popitem()
        rows = judge.figures_and_signs(study(results, plan.POLICIES), self.published)
        self.assertEqual([row.drawn for row in rows], [None] * len(rows), "fewer machines hold less")


class Shown(unittest.TestCase):
    def test_page_and_plots(self):
        speeds = {policy: 1.0 + index / 4 for index, policy in enumerate(plan.POLICIES)}
        results = {"program/pca": answer(speeds), "memprof/facerec/before": answer(speeds), "memprof/facerec/after": answer({"first-touch": 1.4})}
        results[f"synthetic/{plan.MACHINE}/bursts"] = answer({**speeds, "pilot": 0.5})
        everything = study(results, plan.POLICIES)
        published = judge.load(os.path.join(FOLDER, "published.toml"))
        drawings = plots.drawings(everything, published)
        self.assertEqual(sorted(drawings), ["case-studies", "gains", "imbalance", "latency", "local", f"synthetic-{plan.MACHINE}"])
        for drawing in drawings.values():
            ElementTree.fromstring(drawing)
        text = page.page(everything, published, ["simulate broke: why"], "0123456789abcdef", {name: f"p/{name}.svg" for name in drawings})
        needed = ["| `pca` | interleave | local share | 25 % |", "`bursts` on opteron-8385: pilot -50.0 %", "simulate broke: why", "## All programs"]
        for passage in [*needed, *(f"](p/{name}.svg)" for name in drawings)]:
            self.assertIn(passage, text)

    def test_what_is_not_known_is_shown_as_such(self):
        speeds = {policy: 1.0 for policy in plan.POLICIES}
        results = {"program/pca": answer(speeds), "memprof/facerec/before": answer(speeds), "memprof/facerec/after": answer({"first-touch": 1.4})}
        for one in results.values():
            for run in one["runs"]:
                run["total"]["metrics"].update(local_access_ratio=None, memory_latency_cycles=None, controller_imbalance=None)
        everything = study(results, plan.POLICIES)
        published = judge.load(os.path.join(FOLDER, "published.toml"))
        for drawing in plots.drawings(everything, published).values():
            ElementTree.fromstring(drawing)
        text = page.page(everything, published, [""], "0123456789abcdef", {})
        for passage in ("| `pca` | interleave | local share | 25 % | not known |", "| - / - / - |", "* It said nothing."):
            self.assertIn(passage, text)

    def test_a_program_under_one_policy_has_no_best_one(self):
        runs = study({"program/pca": answer({"first-touch": 1.0})}, plan.POLICIES).programs
        self.assertNotIn("**", page.gains_table(runs, plan.POLICIES))

    def test_a_closed_loop_of_another_binary_says_so(self):
        made = "Recorded and predicted by numapilot 0123456789ab (SHA-256 of the binary).\n"
        self.assertEqual(page.looped(made, "0123456789abcdef"), made)
        other = page.looped(made, "fedcba9876543210")
        self.assertTrue(other.startswith("**Of another build of numapilot**") and other.endswith(made), other)
        self.assertEqual(page.looped("", "fedcba9876543210"), "")

    def test_ticks_enclose(self):
        for low, high in ((0, 1), (-7.6, 213), (0, 0.03), (-0.2, 4000)):
            marks = svg.ticks(low, high)
            self.assertTrue(marks[0] <= low and marks[-1] >= high and 3 <= len(marks) <= 10, marks)

    def test_a_cut_off_bar_says_its_value(self):
        drawn = svg.grouped_bars("t", "%", ["a"], ["s"], {"a": {"s": 400.0}}, {}, limit=100.0)
        self.assertIn(">400<", drawn)


def executable(path, text):
    files.write(path, text)
    os.chmod(path, 0o755)


def made_up(folder, programs, extra="", program="#!/bin/sh\n"):
    """A lab whose numapilot notes its calls, makes a recording that is none, and predicts the same of everything."""
    record = 'while [ "$1" != -o ]; do shift; done; mkdir -p "$2"; echo {} > "$2/meta.json"'
    answers = f"case $1 in record) {record};; whatif) echo '{json.dumps(prediction(0.2, 0.1, 0.3))}';; simulate) echo first-touch;; esac\n"
    executable(os.path.join(folder, "numapilot"), f'#!/bin/sh\n[ "$2" = --list ] || echo "$@" >> {folder}/calls\n{extra}{answers}')
    for name in programs:
        for kind in ("instrumented", "native"):
            executable(os.path.join(folder, kind, name), program)
    return runner.Lab(os.path.join(folder, "numapilot"), os.path.join(folder, "instrumented"), folder)


def calls(folder):
    with open(os.path.join(folder, "calls"), encoding="utf-8") as file:
        return file.read().splitlines()


class Kept(unittest.TestCase):
    def test_results_are_kept_until_binary_options_or_input_change(self):
        with tempfile.TemporaryDirectory() as folder:
            binary, description = os.path.join(folder, "numapilot"), os.path.join(folder, "w.toml")
            script = "#!/bin/sh\necho x >> {}/calls\ncat '{}'\n".format(folder, os.environ["SIMULATE_JSON"])
            files.write(binary, script)
            os.chmod(binary, 0o755)
            files.write(description, "a = 1\n")
            job = plan.Job("synthetic/m/w", ("--policy", "first-touch"), description=description)

            def calls():
                answers, failures = runner.Lab(binary, folder, folder).results([job])
                self.assertEqual((list(answers), failures), ([job.label], []))
                with open(os.path.join(folder, "calls"), encoding="utf-8") as file:
                    return len(file.readlines())

            self.assertEqual([calls(), calls()], [1, 1])
            files.write(description, "a = 2\n")
            self.assertEqual(calls(), 2)
            job = plan.Job(job.label, ("--policy", "interleave"), description=description)
            self.assertEqual(calls(), 3)
            files.write(binary, script + "\n")
            os.chmod(binary, 0o755)
            self.assertEqual(calls(), 4)

    def test_predictions_of_programs_that_share_work_out_are_asked_for_as_such(self):
        published = judge.load(os.path.join(FOLDER, "published.toml"))
        for program, is_dynamic in (("pca", True), ("cg", False)):
            with tempfile.TemporaryDirectory() as folder:
                lab, ask = made_up(folder, [program]), plan.asks([program], published)[0]
                self.assertAlmostEqual(lab.predict(ask)["uncertainty"]["median"], 0.2)
                [recorded, asked] = calls(folder)
                self.assertTrue(recorded.startswith("record "), recorded)
                self.assertIn("--set *=interleave", asked)
                self.assertEqual("--dynamic-work" in asked, is_dynamic)

    def test_a_recording_is_kept_until_what_it_depends_on_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            published = judge.load(os.path.join(FOLDER, "published.toml"))
            [ask] = plan.asks(["cg"], published)
            made_up(folder, ["cg"]).predict(ask)
            made_up(folder, ["cg"]).predict(ask)
            self.assertEqual(len(calls(folder)), 2, "recorded and predicted once")
            made_up(folder, ["cg"], program="#!/bin/sh\n# another\n").predict(ask)
            self.assertEqual([call.split()[0] for call in calls(folder)], ["record", "whatif"] * 2)
            made_up(folder, ["cg"], extra="# another\n").predict(ask)
            self.assertEqual([call.split()[0] for call in calls(folder)], ["record", "whatif"] * 3)

    def test_a_build_of_the_authors_is_recorded_and_kept_apart(self):
        published = judge.load(os.path.join(FOLDER, "published.toml"))
        with tempfile.TemporaryDirectory() as folder:
            lab, built = made_up(folder, []), []

            def build(job, folders):
                built.append(job.build)
                for one in folders:
                    executable(os.path.join(one, job.program), "#!/bin/sh\n")

            lab.build = build
            asks = plan.asks(["streamcluster"], published)
            answers, failures = lab.predictions(asks)
            self.assertEqual((len(answers), failures, lab.pending), (len(asks), [], []))
            self.assertEqual(set(built), {"-O3 -g -funroll-loops"})
            recorded = [call for call in calls(folder) if call.startswith("record ")]
            self.assertEqual(len(recorded), 4, "each input, on each machine, once for all that is asked of it")
            for call in recorded:
                self.assertIn(f"--native {folder}/builds/O3-g-funroll-loops/native/streamcluster -- {folder}/builds/O3-g-funroll-loops/instrumented/", call)


def is_ended(process):
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] in ("Z", "X")
    except FileNotFoundError:
        return True


class Time(unittest.TestCase):
    """Runs that end before everything is done."""

    published = judge.load(os.path.join(FOLDER, "published.toml"))

    def test_what_there_is_no_time_for_is_left_and_the_next_run_goes_on_there(self):
        asks = plan.asks(["cg", "mg"], self.published)
        with tempfile.TemporaryDirectory() as folder:
            lab = made_up(folder, ["cg", "mg"])
            lab.predictions(asks[:1])
            lab = made_up(folder, ["cg", "mg"])
            lab.until = 0.0
            answers, failures = lab.predictions(asks)
            self.assertEqual((list(answers), failures, lab.pending), (asks[:1], [], [f"predicted/{asks[1].label}"]))
            self.assertEqual(len(calls(folder)), 2, "what was kept is found, and nothing is begun")
            self.assertEqual(len(made_up(folder, ["cg", "mg"]).predictions(asks)[0]), 2)
            self.assertEqual(len(calls(folder)), 4)

    def test_a_command_is_stopped_with_all_that_it_started(self):
        with tempfile.TemporaryDirectory() as folder:
            noted = os.path.join(folder, "child")
            with self.assertRaises(runner.OutOfTime):
                runner.run(["sh", "-c", f"sleep 600 & echo $! > {noted}; wait"], seconds=2)
            with open(noted, encoding="utf-8") as file:
                child = file.read().strip()
            for _ in range(100):
                if is_ended(child):
                    return
                time.sleep(0.1)
            self.fail(f"{child} still runs")

    def test_the_exit_status_tells_whether_there_is_more_to_do(self):
        slow = "case $1 in record) sleep 600;; esac\n"
        for extra, minutes, status in ((slow, "0.05", 3), ("", "1", 0), ("case $1 in whatif) exit 9;; esac\n", "1", 1)):
            with tempfile.TemporaryDirectory() as folder:
                lab = made_up(folder, ["cg"], extra)
                command = [sys.executable, os.path.join(FOLDER, "run"), lab.numapilot, lab.workloads, folder, "--predict", "--minutes", minutes, "--only", "cg"]
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
                self.assertEqual(done.returncode, status, done.stderr)
                # On a busy machine the time may be over before anything is begun.
                self.assertTrue(status == 3 or "[1 of 1] recording cg --variant parallel --no-verify" in done.stderr, done.stderr)
                self.assertEqual("1 left to do" in done.stderr, status == 3, done.stderr)
                self.assertEqual("0 of 1 configurations are predicted" in done.stdout, status != 0, done.stdout)
                self.assertEqual(os.path.exists(os.path.join(folder, "traces", "cg-parallel-no-verify.numatrace")), status != 3)


class Failures(unittest.TestCase):
    def test_what_is_no_answer_is_a_failure_and_is_not_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = os.path.join(folder, "numapilot")
            files.write(binary, "#!/bin/sh\necho '{}'\n")
            os.chmod(binary, 0o755)
            job = plan.Job("synthetic/m/w", (), description=binary)
            answers, failures = runner.Lab(binary, folder, folder).results([job])
            self.assertEqual(answers, {})
            self.assertIn("synthetic/m/w: not an answer", failures[0])
            self.assertFalse(os.path.exists(os.path.join(folder, "simulated")))

    def test_a_program_that_is_not_there_costs_its_own_rows_only(self):
        with tempfile.TemporaryDirectory() as folder:
            binary = os.path.join(folder, "numapilot")
            files.write(binary, "#!/bin/sh\nexit 1\n")
            os.chmod(binary, 0o755)
            answers, failures = runner.Lab(binary, folder, folder).results(plan.jobs(["pca"], plan.POLICIES, 1.0, 1, False))
            self.assertEqual(answers, {})
            self.assertIn("no such program", failures[0])


    def test_what_no_native_run_can_anchor_is_not_predicted(self):
        published = judge.load(os.path.join(FOLDER, "published.toml"))
        with tempfile.TemporaryDirectory() as folder:
            lab = made_up(folder, ["cg"])
            os.remove(os.path.join(folder, "native", "cg"))
            answers, failures = lab.predictions(plan.asks(["cg"], published))
            self.assertEqual(answers, {})
            self.assertIn("native/cg: no such program", failures[0])

    def test_a_recording_that_fails_is_tried_once_and_costs_its_own_rows_only(self):
        published = judge.load(os.path.join(FOLDER, "published.toml"))
        with tempfile.TemporaryDirectory() as folder:
            lab = made_up(folder, ["cg", "mg"], 'case "$*" in record*instrumented/cg*) echo broken >&2; exit 7;; esac\n')
            first, other = sorted(plan.asks(["cg", "mg"], published), key=lambda ask: ask.program)
            asks = [first, dataclasses.replace(first, sets=("a=interleave",)), other]
            answers, failures = lab.predictions(asks)
            self.assertEqual((list(answers), len(failures)), ([other], 1))
            self.assertIn("failed with 7: broken", failures[0])
            self.assertEqual([call.split()[0] for call in calls(folder)], ["record", "record", "whatif"])

    def test_a_full_disk_costs_the_rows_that_it_hits(self):
        with tempfile.TemporaryDirectory() as folder:
            lab = made_up(folder, ["cg", "mg"])

            def record(job, _machine):
                if job.program == "cg":
                    raise OSError("no space left")
                return {}

            lab.record, lab.simulate = record, lambda job, _recorded: {"made": job.program}
            answers, failures = lab.results(plan.jobs(["cg", "mg"], plan.POLICIES, 1.0, 1, False))
            self.assertEqual((answers, failures), ({"program/mg": {"made": "mg"}}, ["no space left"]))


class KernelBalancing(unittest.TestCase):
    """experiments/kernel-balancing, with a made-up lab."""

    def setUp(self):
        self.tool = loading.tool("../experiments/kernel-balancing")

    def test_what_the_kernel_did_is_kept_until_the_program_or_its_arguments_change(self):
        with tempfile.TemporaryDirectory() as folder:
            pattern, path = os.path.join(folder, "pattern"), os.environ["PATH"]
            executable(os.path.join(folder, "bin", "cargo"), f"#!/bin/sh\necho \"$@\" >> {folder}/calls\necho '{{\"nodes\": 4}}'\n")
            files.write(os.path.join(folder, "real-pair.json"), '{"nodes": 2}')
            os.environ["PATH"] = os.path.join(folder, "bin") + os.pathsep + path
            try:
                for text, seconds, count in (("a", 2.0, 1), ("a", 2.0, 1), ("a", 3.0, 2), ("b", 3.0, 3)):
                    files.write(pattern, text)
                    self.assertEqual(self.tool.run_real("pair", pattern, folder, seconds), {"nodes": 4})
                    self.assertEqual(len(calls(folder)), count)
            finally:
                os.environ["PATH"] = path

    def test_a_program_that_fails_costs_its_own_table_only(self):
        def run_real(name, *_):
            if name == "shared":
                raise self.tool.Failed("no guest")
            block = {"pages_on_node": [1, 0, 0, 0]}
            return {"seconds_since_exec": 0.0, "nodes": 4, "placement": [{"seconds": 0.0, "blocks": [block] * len(self.tool.PROGRAMS[name])}]}

        self.tool.run_real, self.tool.simulated_points = run_real, lambda *_: [(0.0, 1.0, 1.0)]
        printed, said, arguments = io.StringIO(), io.StringIO(), sys.argv
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
            sys.argv = ["kernel-balancing", "numapilot", "pattern", folder]
            try:
                status = self.tool.main()
            finally:
                sys.argv = arguments
            with open(os.path.join(folder, "kernel-balancing.csv"), encoding="utf-8") as file:
                named = [line.split(",")[0] for line in file.read().splitlines()]
        self.assertEqual((status, named), (1, ["program", "parts", "pair"]))
        self.assertIn("shared: no guest", said.getvalue())

    def test_a_step_without_a_known_share_is_no_point(self):
        steps = [{"to_ns": 1e9, "served": [1, 3], "metrics": {"local_access_ratio": local}} for local in (0.5, None)]
        self.assertEqual(self.tool.points_of(steps), [(1.0, 0.5, 0.25)])


class Loop(unittest.TestCase):
    """tools/loop.py, with a made-up numapilot."""

    def test_rows_come_of_predictions_and_of_recordings_with_the_change(self):
        asked = []

        def ask(*words):
            asked.append(words)
            if words[0] == "report":
                with open(words[3], "w", encoding="utf-8") as file:
                    file.write("version = 1\n[[object]]\n")
            if words[0] == "whatif":
                return json.dumps({"gain": 0.2, "gain_low": 0.1, "gain_high": 0.3})
            return json.dumps({"gain": {"value": 0.32 if "after-0-1" in words[2] else 0.5, "low": 0.29, "high": 0.5}})

        recorded = []

        def record(name, *options):
            recorded.append((name, options))
            return name

        with tempfile.TemporaryDirectory() as folder:
            rows = loop.rows("made", record, ask, folder)
        self.assertEqual([one.what for one in rows], [loop.INTERLEAVED, loop.PLANNED])
        # Both lie beyond the interval, by less than is known of them.
        self.assertEqual([(one.inside, one.meets) for one in rows], [(False, True), (False, True)])
        self.assertEqual(len(recorded), loop.RUNS * 3)
        self.assertIn(("after-1-2.numatrace", ("--seed", "2", "--plan", os.path.join(folder, "fix.toml"))), recorded)
        compared = [words for words in asked if words[0] == "compare"]
        self.assertEqual(compared[0][:3], ("compare", "before-1.numatrace", "after-0-1.numatrace"))
        self.assertIn("| `made` | everything interleaved | +20.0 | +10.0 to +30.0 | +32.0 (+29.0 to +50.0) | within both intervals |", loop.table(rows))
        self.assertIn("0 of 2 gains that were found lie inside", loop.verdict(rows))
        self.assertIn("2 the two intervals meet", loop.verdict(rows))
        self.assertEqual([loop.Row(**loop.kept(one)) for one in rows], rows)

    def test_a_change_that_fails_costs_its_own_row_only(self):
        def ask(*words):
            if words[0] == "report":
                with open(words[3], "w", encoding="utf-8") as file:
                    file.write("version = 1\n[[object]]\n")
            if words[0] == "whatif":
                return json.dumps({"gain": 0.2, "gain_low": 0.1, "gain_high": 0.3})
            return json.dumps({"gain": {"value": 0.2, "low": 0.1, "high": 0.3}})

        def record(name, *options):
            if "--plan" in options:
                raise ValueError("no such object")
            return name

        told = []
        with tempfile.TemporaryDirectory() as folder:
            rows = loop.rows("made", record, ask, folder, lambda what, error: told.append((what, str(error))))
            self.assertEqual([one.what for one in rows], [loop.INTERLEAVED])
            self.assertEqual(told, [(loop.PLANNED, "no such object")])
            with self.assertRaises(ValueError):
                loop.rows("made", record, ask, folder)

    def test_processor_times_are_compared_where_sleeps_decide_how_long_the_run_is(self):
        asked = []

        def ask(*words):
            asked.append(words)
            if words[0] == "report":
                with open(words[3], "w", encoding="utf-8") as file:
                    file.write("version = 1\n")
            if words[0] == "whatif":
                return json.dumps({"gain": 0.0, "gain_low": 0.0, "gain_high": 0.0, "work_gain": {"value": 0.2, "low": 0.1, "high": 0.3}})
            found = {"value": 0.25, "low": 0.2, "high": 0.3}
            return json.dumps({"gain": {"value": 0.0, "low": 0.0, "high": 0.0}, "prediction": {"found": found}})

        with tempfile.TemporaryDirectory() as folder:
            [row] = loop.rows("made", lambda name, *_: name, ask, folder)
            self.assertIn(("--prediction", os.path.join(folder, "predicted-0.json")), list(zip(asked[-1], asked[-1][1:])))
        self.assertEqual((row.what, row.predicted, row.found, row.inside), (f"{loop.INTERLEAVED} (processor time)", 0.2, 0.25, True))
        endless = json.dumps({"gain": 0.2, "gain_low": 0.1, "gain_high": None})
        with self.assertRaisesRegex(ValueError, "did not converge"):
            loop.row("made", "x", endless, json.dumps({"gain": {"value": 0.2, "low": 0.1, "high": 0.3}}))

    def test_a_prediction_that_is_wrong_shows(self):
        far = loop.Row("made", "x", 0.2, 0.1, 0.3, -0.2, -0.25, -0.15)
        self.assertFalse(far.inside or far.meets or far.sign_agrees)
        self.assertIn("**no**", loop.table([far]))
        self.assertIn("of 1 found gains that have a sign, 0 have the predicted one", loop.verdict([far]))
        # Too small, or not known so well: nothing that could have contradicted the prediction, and nothing that confirms it.
        small = loop.Row("made", "x", 0.03, 0.02, 0.04, -0.01, -0.015, -0.005)
        wide = loop.Row("made", "x", 0.03, 0.02, 0.04, -0.2, -0.45, 0.05)
        self.assertEqual([row.sign_agrees for row in (small, wide, far)], [None, None, False])
        self.assertIn("of 1 found gains that have a sign, 0 have the predicted one", loop.verdict([small, wide, far]))


if __name__ == "__main__":
    unittest.main()
