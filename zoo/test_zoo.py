"""Holds the zoo's own logic to small cases, with the manifest as it is. Nothing here downloads, builds or judges numapilot. Run by crates/cli/tests/zoo.rs."""

import os
import sys
import tempfile
import unittest
import unittest.mock

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [FOLDER, os.path.join(os.path.dirname(FOLDER), "tools")]
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


    def test_other_suites_of_the_same_mirror_are_asked_for_debian_alone(self):
        listed = "Packages|Debian|http://m/|bookworm|main|\nPackages|Debian|http://m/|bookworm-updates|main|\nPackages|Ubuntu|http://u/|noble|main|"
        asked = ("http://m/ bookworm", "http://m/ bookworm-updates", "http://m/ stable", "http://u/ noble")
        self.assertEqual(fetch.source_lines(listed, ("stable",)), [f"deb-src {one} main" for one in asked])

    def test_the_systems_own_versions_come_first_and_packages_of_other_names_never(self):
        rows = ("pigz | 2.8-1 | m trixie/main", "pigz | 2.6-1 | m bookworm/main", "pigz | 2.8-2 | m sid/main", "pigz | 2.6-1+deb12u1 | m bookworm/main")
        listed = "".join(f" {row} Sources\n" for row in (*rows, "other | 9 | m bookworm/main"))
        self.assertEqual(fetch.candidates(listed, "pigz", {"bookworm"}), ["2.6-1+deb12u1", "2.6-1", "2.8-1", "2.8-2"])

    def archive(self, folder, refused):
        """An archive whose mirror has what `refused` does not name."""
        def run(command, cwd=None):
            if command[0] == "apt-cache":
                return "p | 1-1 | m bookworm/main Sources\np | 2-1 | m sid/main Sources\n"
            tried = (command[-1], "--tar-only" in command)
            if tried in refused:
                raise fetch.Failed(f"404 {tried}")
            return ""

        archive = fetch.Archive(folder)
        archive.own = {"bookworm"}
        return archive, run

    def test_a_version_that_the_mirror_lacks_gives_way_to_the_next_and_to_upstreams_alone_at_last(self):
        first, second, bare = ("p=1-1", False), ("p=2-1", False), ("p=1-1", True)
        for refused, version in (((), "1-1"), ((first,), "2-1"), ((first, second), "1-1 (upstream alone)"), ((first, second, bare), "2-1 (upstream alone)")):
            with tempfile.TemporaryDirectory() as folder:
                archive, run = self.archive(folder, refused)
                with unittest.mock.patch.object(fetch, "run", run):
                    self.assertEqual(archive.fetch("p", os.path.join(folder, "archive")), version)
        with tempfile.TemporaryDirectory() as folder:
            archive, run = self.archive(folder, (first, second, bare, ("p=2-1", True)))
            with unittest.mock.patch.object(fetch, "run", run), self.assertRaisesRegex(fetch.Failed, "has the files of none of 1-1, 2-1: 404"):
                archive.fetch("p", os.path.join(folder, "archive"))


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
        sites = {"1": "heap a", "2": "heap b", "3": "allocator allocator"}
        cleared = (320, 0, 3, 1, "memset", "")
        rows = samples(cleared, (64, 0, 1, 1, "f", "/x.c"), (128, 1, 1, 1, "f", "/x.c"), (192, 0, 2, 2, "memcpy", ""), (256, 0, 2, 4, "inflate", ""))
        seen = judge.seen(rows, sites)
        self.assertEqual(seen["own"], 4 / 9)
        self.assertEqual(seen["sites"]["heap a"]["share"][0], 0.5)
        self.assertEqual(seen["sites"]["heap a"]["homes"]["1"][0], 0.5)

    def test_block_copies_that_the_library_does_not_name_are_the_programs_own(self):
        symbols = " 5501: 0000000000000100    16 FUNC    LOCAL  DEFAULT   16 __memset_avx2\n 5502: 0000000000000200    16 FUNC    LOCAL  DEFAULT   16 qsort\n"
        copies = judge.ranges_of(symbols)
        self.assertEqual(copies, [(0x100, 0x10F)])
        own = lambda function, file="": judge.is_own({"function": function, "file": file}, copies)
        self.assertTrue(own("libc.so.6+0x10f") and own("main", "/x.c"))
        copied = {"function": "libc.so.6+0x100", "file": ""}
        self.assertEqual([judge.is_own(copied, copies, caller, {"deflate"}) for caller in ("main", "", "deflate", "libz.so.1+0x5")], [True, True, False, False])
        self.assertEqual(judge.callers('stack,frames\r\n7,"[""memcpy"",""deflate""]"\r\n8,"[""main""]"\r\n'), {"7": "deflate"})
        self.assertFalse(own("libc.so.6+0x110") or own("other+0x10f") or own("malloc", "./malloc/malloc.c"))

    def test_samples_of_one_line_are_one_draw(self):
        def width(step):
            rows = samples(*((64 * (n * step // 64), 0, 1 + n % 2, 8, "f", "/x.c") for n in range(1000)))
            share = judge.seen(rows, {"1": "heap a", "2": "heap b"})["sites"]["heap a"]["share"]
            return share[2] - share[1]

        self.assertGreater(width(8), 2 * width(128))

    def test_what_lies_beyond_both_intervals_counts_and_only_that(self):
        def recording(share, home):
            none = {"elsewhere": [0.0, 0.0, 0.0]}
            of = {"share": [share, share - 0.01, share + 0.01], "homes": {"0": [home, home, home], "1": [1 - home] * 3}, **none}
            rest = {"share": [1 - share, 0.99 - share, 1.01 - share], "homes": {"0": [1.0, 1.0, 1.0]}, **none}
            return {"samples": 1000, "sites": {"heap a": of, "heap b": rest}}

        same = judge.agreement(recording(0.5, 0.5), recording(0.515, 0.5))
        self.assertEqual((same["shares"], same["homes"]), (0.0, 0.0))
        apart = judge.agreement(recording(0.5, 0.5), recording(0.6, 1.0))
        self.assertAlmostEqual(apart["shares"], 0.08)
        self.assertAlmostEqual(apart["homes"], 0.55 * 0.5)
        self.assertEqual(apart["blame"][0][1], "heap a")

    def test_one_sample_on_one_node_does_not_prove_that_none_is_on_another(self):
        def recording(*homes):
            return judge.seen(samples(*((64 * n, home, 1, 512, "f", "/x.c") for n, home in enumerate(homes))), {"1": "heap a"})

        few, many = recording(0), recording(*(n % 2 for n in range(100)))
        self.assertEqual(judge.agreement(few, many)["homes"], 0.0)
        self.assertGreater(judge.agreement(recording(*[0] * 100), many)["homes"], 0.3)

    def test_engines_are_apart_by_what_exceeds_the_distance_of_two_recordings_by_one(self):
        def recorded(*shares):
            def seen(share):
                none = {"elsewhere": [0.0, 0.0, 0.0]}
                part = lambda part: {"share": [part, part, part], "homes": {"0": [1.0, 1.0, 1.0]}, **none}
                return {"samples": 1000, "sites": {"heap a": part(share), "heap b": part(1 - share)}}

            return {engine: run(seen=seen(share)) for engine, share in zip(("instrument", "again", "emulate"), shares, strict=True)}

        agreeing, differing, open_ones = [(0.5, 0.5, 0.52), (0.5, 0.52, 0.55), (0.3, 0.5, 0.5)], [(0.5, 0.5, 0.54)], [(0.3, 0.5, 0.7)]
        for shares, verdict in [(one, told) for ones, told in ((agreeing, True), (differing, False), (open_ones, None)) for one in ones]:
            results = recorded(*shares)
            told, problems = judge.agree(results)
            self.assertEqual((told, len(problems)), (verdict, int(verdict is not True)), shares)
        self.assertAlmostEqual(results["agreement"]["between"]["shares"], 0.3)
        self.assertIn("cannot be told", problems[0])

    def test_every_check_can_fail(self):
        good = {"instrument": run(), "track": run(with_object=None)}
        self.assertEqual(judge.verdicts(program(**good))[1], [])
        other, losses = {"same_output": False, "differing": ["stdout"]}, ({"lost": {name: 1}} for name in judge.LOST)
        for wrong in (other, *losses, {"with_object": 0.9}, {"failed": "ended with -11"}):
            checks, problems = judge.verdicts(program(instrument=run(**wrong)))
            self.assertEqual((checks["instrument"], len(problems)), (False, 1), wrong)

    def test_few_samples_do_not_prove_that_objects_are_missing(self):
        self.assertTrue(judge.blind(run(with_object=0.95, samples=1000)))
        self.assertFalse(judge.blind(run(with_object=0.95, samples=20)))
        self.assertEqual([table.marked(run(with_object=share, samples=20)) for share in (0.95, 0.99)], ["95*", "99"])
        said = table.sentences([program(instrument=run(with_object=0.95, samples=20))])
        self.assertIn("`instrument`: at least 99 % of the samples with an object, plainly: 0 of 1", said)

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
