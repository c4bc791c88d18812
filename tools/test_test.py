"""Unit tests of the runner of the tests (tools/test): each test that a program lists runs once. Run by crates/cli/tests/runner.rs."""

import contextlib
import io
import os
import pathlib
import signal
import sys
import tempfile
import unittest
from unittest import mock

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import emulated  # noqa: E402
import loading  # noqa: E402

# What Rust's harness does with these arguments. LOSE: one test does not run. CRASH: a test ends the program.
PROGRAM = """#!/usr/bin/env python3
import os, sys
tests = ["homes::near", "homes::far", "lab_homes::near", "lone"]
if "--list" in sys.argv:
    print(*(f"{test}: test" for test in tests), sep="\\n")
    sys.exit()
if "--exact" in sys.argv:
    tests = [test for test in tests if test in sys.argv]
tests = tests[:-1] if "LOSE" in os.environ else tests
for test in tests:
    if "CRASH" in os.environ:
        os.abort()
    print(f"test {test} ... ok")
print("test result: ok. 7 passed; 0 failed; 0 ignored, in a program that a test started")
print(f"\\ntest result: ok. {len(tests)} passed; 0 failed; 0 ignored; 0 measured; 9 filtered out; finished in 0.00s")
"""


class Runner(unittest.TestCase):
    def setUp(self):
        self.runner = loading.tool("test")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.package = pathlib.Path(folder.name) / "host"
        self.package.mkdir()
        self.program = self.package / "program"
        self.program.write_text(PROGRAM)
        self.program.chmod(0o755)

    def jobs(self, name, is_integration=True):
        return self.runner.jobs_of(name, str(self.program), self.package, is_integration)

    def run_job(self, job, **environment):
        return job.run(set(), os.environ | environment)

    def test_each_file_of_a_shared_program_runs_by_itself_and_each_test_once(self):
        jobs = [self.run_job(job) for job in self.jobs("all")]
        self.assertEqual([(job.name, job.file) for job in jobs], [("host/homes", "homes"), ("host/lab_homes", "lab_homes"), ("host/all", "all")])
        ran = [line.split()[1] for job in jobs for line in job.output.splitlines() if line.endswith("... ok")]
        self.assertEqual(sorted(ran), ["homes::far", "homes::near", "lab_homes::near", "lone"])
        self.assertEqual([job.failures() for job in jobs], [[], [], []])
        self.assertEqual([job.results() for job in jobs], [[(2, 0, 0)], [(1, 0, 0)], [(1, 0, 0)]])

    def test_other_programs_run_whole(self):
        self.assertEqual([(job.name, job.file, job.tests) for job in self.jobs("tidy")], [("host/tidy", "tidy", 4)])
        self.assertEqual([(job.file, job.tests) for job in self.jobs("all", is_integration=False)], [(None, 4)])

    def test_a_test_that_does_not_run_is_a_failure(self):
        homes = self.jobs("all")[0]
        self.assertEqual(self.run_job(homes, LOSE="1").failures(), ["host/homes (ran 1 of 2 tests)"])
        self.assertEqual(self.run_job(homes, CRASH="1").failures(), ["host/homes (signal 6)"])

    def test_the_quick_lane_leaves_slow_files_out_and_the_whole_run_begins_with_them(self):
        self.runner.built = lambda options: [("all", str(self.program), self.package, True)] if "--workspace" in options else []
        for slow, quick, whole in [
            ({"homes": 5.0}, ["lab_homes", "all"], ["homes", "lab_homes", "all"]),
            ({"homes": 5.0, "lab_homes": 9.0}, ["all"], ["lab_homes", "homes", "all"]),
        ]:
            self.runner.known_seconds = lambda slow=slow: slow
            self.assertEqual([job.file for job in self.runner.test_jobs(True)], quick)
            self.assertEqual([job.file for job in self.runner.test_jobs(False)], whole)
        self.runner.known_seconds = lambda: {"gone": 1.0}
        with self.assertRaisesRegex(SystemExit, "no integration test is named gone"):
            self.runner.test_jobs(True)

    def test_other_processors_leave_out_what_their_list_says_and_say_so(self):
        run, guest, left_out = self.runner.emulated_tests("# why\n\nrun\thost\nguest\tkernel\nnot\thost homes::*\tno pages\nnot\thost gone::*\told\n")
        self.assertEqual((run, guest), (["host"], ["kernel"]))
        jobs = [self.run_job(job) for job in self.runner.jobs_of("all", str(self.program), self.package, True, left_out)]
        self.assertEqual([(job.name, job.results()) for job in jobs], [("host/lab_homes", [(1, 0, 0)]), ("host/all", [(1, 0, 0)])])
        self.assertEqual(left_out.idle(), ["host gone::*"])
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            left_out.show()
        self.assertEqual(shown.getvalue(), "\nleft out: 2: no pages:\n  host homes::near, host homes::far\n")
        for line in ("not\thost homes::*", "not\thost homes::*\t", "run", "skip\thost\twhy"):
            with self.assertRaisesRegex(SystemExit, "with tabs between"):
                self.runner.emulated_tests(line)

    def test_an_emulators_line_has_no_byte_that_ends_it(self):
        line = emulated.escaped(emulated.AARCH64_MAGIC)
        self.assertEqual(bytes.fromhex(line.decode().replace("\\x", "")), emulated.AARCH64_MAGIC)
        self.assertEqual([len(emulated.AARCH64_MAGIC)], [len(emulated.AARCH64_MASK)])
        self.assertEqual(set(line) & set(b"\0:\n"), set())

    def test_property_tests_draw_the_same_cases_unless_others_are_asked_for(self):
        with mock.patch.dict(os.environ):
            os.environ.pop("PROPTEST_RNG_SEED", None)
            self.assertEqual(self.runner.environment_of({"TMPDIR": "/t"})["PROPTEST_RNG_SEED"], self.runner.PROPERTY_SEED)
            os.environ["PROPTEST_RNG_SEED"] = "7"
            found = self.runner.environment_of({"TMPDIR": "/t"})
        self.assertEqual((found["PROPTEST_RNG_SEED"], found["TMPDIR"], found["PATH"]), ("7", "/t", os.environ["PATH"]))

    def test_what_is_built_meanwhile_runs_too(self):
        jobs = self.jobs("all")
        with contextlib.redirect_stdout(io.StringIO()) as shown, tempfile.TemporaryDirectory() as scratch:
            handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            self.runner.run_all(jobs, lambda: self.jobs("later"), dict(os.environ), scratch)
            for number, handler in handlers.items():
                signal.signal(number, handler)
        self.assertEqual([(job.name, job.status) for job in jobs], [("host/homes", 0), ("host/lab_homes", 0), ("host/all", 0), ("host/later", 0)])
        self.assertEqual([shown.getvalue().count(f"Ran {job.name} in") for job in jobs], [1] * 4)


if __name__ == "__main__":
    unittest.main()
