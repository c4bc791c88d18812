"""Holds the zoo's own logic to small cases, with the manifest as it is. Nothing here downloads, builds or judges numapilot. Run by crates/cli/tests/zoo.rs."""

import os
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True

import fetch  # noqa: E402
import homes  # noqa: E402
import inputs  # noqa: E402
import judge  # noqa: E402
import manifest  # noqa: E402
import steps  # noqa: E402
import table  # noqa: E402

HEAD = "time_ns,address,home,site,weight,function,file\r\n"


def samples(*rows):
    """Rows of (address, home, site, weight, function, file)."""
    return HEAD + "".join("0," + ",".join(map(str, row)) + "\r\n" for row in rows)


def run(**more):
    """A run that passes everything."""
    good = {"failed": "", "same_output": True, "differing": [], "lost": {}, "with_object": 1.0, "samples": 1000}
    return {**good, "cpu_s": 2.0, "rss_kib": 2000, "revision": "r", **more}


def program(**more):
    about = {"name": "p", "source": "p", "languages": "C", "threading": "pthreads", "system": "make"}
    native = {"failed": "", "cpu_s": 1.0, "rss_kib": 1000, "revision": "r"}
    return {"program": about, "source": {"failed": "", "version": "1-1"}, "native": native, **more}


class Manifest(unittest.TestCase):
    def test_there_are_thirty_programs_and_each_can_run(self):
        programs = manifest.load(os.path.join(FOLDER, "manifest.toml"))
        self.assertGreaterEqual(len(programs), 30)
        for one in programs.values():
            self.assertTrue(one.run and one.build, one.name)

    def test_a_wrong_entry_is_refused_with_its_place(self):
        for text, said in (("[a]\nrun = 'x'", "run"), ("[a]\nbuilt = 'x'", "no such key: built"), ("[a]\nsource = 'x'", "languages is missing")):
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(text)
                file.flush()
                with self.assertRaisesRegex(manifest.Wrong, said):
                    manifest.load(file.name)


class Fetch(unittest.TestCase):
    def test_sources_come_from_where_the_system_gets_its_packages(self):
        debian = "|Debian|http://mirror/debian/|bookworm|main|"
        listed = f"Packages{debian}/k.gpg\nDEP-11{debian}\nPackages|Other|http://o/|s|main|"
        self.assertEqual(fetch.source_lines(listed), ["deb-src [signed-by=/k.gpg] http://mirror/debian/ bookworm main"])


class Steps(unittest.TestCase):
    def test_a_command_that_does_not_end_is_ended_and_said(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out")
            took = steps.run(["sleep", "60"], folder, dict(os.environ), out, out, 0.2)
            self.assertIsNone(took.status)
            self.assertIn("still running", took.problem)
            self.assertEqual(steps.run(["sh", "-c", "exit 3"], folder, dict(os.environ), out, out, 30).status, 3)


class Inputs(unittest.TestCase):
    def test_inputs_are_the_same_every_time_and_as_large_as_asked(self):
        self.assertEqual(inputs.text(2), inputs.text(2))
        self.assertEqual(len(inputs.text(2)), 2048)
        self.assertEqual(inputs.reads(3).count(b"@read"), 3)


class Judge(unittest.TestCase):
    def test_only_the_programs_own_code_is_compared(self):
        sites = {"1": "heap a", "2": "heap b"}
        rows = samples((64, 0, 1, 1, "f", "/x.c"), (128, 1, 1, 1, "f", "/x.c"), (192, 0, 2, 2, "memcpy", ""), (256, 0, 2, 4, "inflate", ""))
        seen = judge.seen(rows, sites)
        self.assertEqual(seen["own"], 0.5)
        self.assertEqual(seen["sites"]["heap a"]["share"][0], 0.5)
        self.assertEqual(seen["sites"]["heap a"]["homes"]["1"][0], 0.5)

    def test_samples_of_one_line_are_one_draw(self):
        def width(step):
            rows = samples(*((64 * (n * step // 64), 0, 1 + n % 2, 8, "f", "/x.c") for n in range(1000)))
            share = judge.seen(rows, {"1": "heap a", "2": "heap b"})["sites"]["heap a"]["share"]
            return share[2] - share[1]

        self.assertGreater(width(8), 2 * width(128))

    def test_what_lies_beyond_both_intervals_counts_and_only_that(self):
        def recording(share, home):
            of = {"share": [share, share - 0.01, share + 0.01], "homes": {"0": [home, home, home], "1": [1 - home] * 3}}
            rest = {"share": [1 - share, 0.99 - share, 1.01 - share], "homes": {"0": [1.0, 1.0, 1.0]}}
            return {"samples": 1000, "sites": {"heap a": of, "heap b": rest}}

        same = judge.agreement(recording(0.5, 0.5), recording(0.515, 0.5))
        self.assertEqual((same["shares"], same["homes"]), (0.0, 0.0))
        apart = judge.agreement(recording(0.5, 0.5), recording(0.6, 1.0))
        self.assertAlmostEqual(apart["shares"], 0.08)
        self.assertAlmostEqual(apart["homes"], 0.55 * 0.5)
        self.assertEqual(apart["blame"][0][1], "heap a")

    def test_every_check_can_fail(self):
        good = {"instrument": run(), "track": run(with_object=None)}
        self.assertEqual(judge.verdicts(program(**good))[1], [])
        for wrong in ({"same_output": False, "differing": ["stdout"]}, {"lost": {"ring_full": 3}}, {"with_object": 0.9}, {"failed": "ended with -11"}):
            checks, problems = judge.verdicts(program(instrument=run(**wrong)))
            self.assertEqual((checks["instrument"], len(problems)), (False, 1), wrong)

    def test_few_samples_do_not_prove_that_objects_are_missing(self):
        self.assertTrue(judge.blind(run(with_object=0.95, samples=1000)))
        self.assertFalse(judge.blind(run(with_object=0.95, samples=20)))

    def test_a_report_without_accesses_has_no_share_of_objects(self):
        losses = dict.fromkeys((*judge.LOST, "accesses_without_object", "accesses_without_home"), 0)
        recorded = {"losses": {**losses, "ring_full": 2}, "object_count": 1, "thread_count": 1, "process_count": 1}
        figures = judge.recording({"recording": recorded, "headline": None})
        self.assertEqual((figures["with_object"], figures["lost"]), (None, {"ring_full": 2}))


class Table(unittest.TestCase):
    def test_failures_are_rows_with_their_reason(self):
        everything = [program(instrument=run(lost={"ring_full": 1})), {"program": program()["program"], "source": {"failed": "404 | gone", "revision": "r"}}]
        text = table.as_text(everything)
        self.assertIn("lost: ring_full 1", text)
        self.assertIn("404 | gone", text)
        machine = {"date": "2026-01-01", "cpu": "c", "cores": 2, "memory_gib": 4, "system": "s", "kernel": "6", "load": "l"}
        self.assertIn("404 \\| gone", table.as_page("# head", everything, machine, []))

    def test_homes_that_could_not_be_compared_are_rows_too(self):
        pages = {"same": 98, "explained": 1, "other": 1, "simulated_only": 0, "kernel_only": 7}
        done = {"label": "w", "failed": "", "total": pages, "objects": [{"kind": "heap", "name": "a", "pages": pages}]}
        lines = "\n".join(homes.table([done, {"label": "x", "failed": "no guest"}]))
        self.assertIn("98.00", lines)
        self.assertIn("99.00", lines)
        self.assertIn("no guest", lines)
        self.assertIn("1 of 1; not compared: 1", lines)


if __name__ == "__main__":
    unittest.main()
