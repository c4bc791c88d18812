"""Tests of .github/workflows: they run commands that there are, with few rights, and actions that cannot change. Run by crates/cli/tests/runner.rs.

Their YAML is read line by line: each key that is asked for here stands alone in its line.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import unittest

TREE = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True

FILES = {path.name: path.read_text(encoding="utf-8") for path in sorted((TREE / ".github/workflows").glob("*.yml"))}
# GitHub ends a job after six hours.
MINUTES_MAX = 360


def values(text, key):
    """Values of a key, wherever it stands, without the comment behind."""
    return [value.partition(" #")[0].strip() for value in re.findall(rf"^ *(?:- )?{key}: *(.*)$", text, re.MULTILINE)]


def jobs(text):
    """The text of each job by its name."""
    parts = re.split(r"^  ([\w-]+):$", text.partition("\njobs:\n")[2], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def goals(command):
    """What commands of `make` are to make: [(folder, goal)]."""
    found = []
    for part in re.findall(r"make [^&|;()]*", command):
        words, folder = shlex.split(part)[1:], "."
        if "-C" in words:
            at = words.index("-C")
            folder = words[at + 1]
            del words[at : at + 2]
        found += [(folder, word) for word in words if not word.startswith("-") and "=" not in word]
    return found


class Workflows(unittest.TestCase):
    def test_all_jobs_are_read(self):
        self.assertEqual({name: list(jobs(text)) for name, text in FILES.items()}, {
            "check.yml": ["check", "docs"], "nightly.yml": ["zoo", "soak", "fuzz", "emulated", "packages"],
            "release.yml": ["packages", "packages-arm64", "publish"], "test.yml": ["test", "first-steps", "packages", "packages-arm64", "installed"]})
        for name, text in FILES.items():
            self.assertNotIn("\t", text, name)
            for job, part in jobs(text).items():
                self.assertEqual(values(part, "runs-on"), ["ubuntu-24.04-arm" if job.endswith("-arm64") else "ubuntu-24.04"], (name, job))
                (minutes,) = values(part, "timeout-minutes")
                self.assertLess(int(minutes), MINUTES_MAX, (name, job))

    def test_commands_are_there(self):
        seen = set()
        for name, text in FILES.items():
            for command in values(text, "run"):
                for folder, goal in goals(command):
                    makefile = (TREE / folder / "Makefile").read_text(encoding="utf-8")
                    self.assertRegex(makefile, rf"(?m)^{re.escape(goal)}:", (name, command))
                    seen.add(goal)
                for tool in re.findall(r"(?<![\w/])tools/[\w-]+", command):
                    self.assertTrue(os.access(TREE / tool, os.X_OK), (name, command))
                    seen.add(tool)
        wanted = {"check", "docs", "test", "packages", "release-dry-run", "query", "zoo", "fuzz", "tools/try-packages", "tools/try-unit",
                  "tools/soak", "tools/keep-libraries"}
        self.assertLessEqual(wanted, seen)

    def test_actions_are_pinned(self):
        commits = {}
        for name, text in FILES.items():
            for used in re.findall(r"uses: *(.*)", text):
                found = re.fullmatch(r"([\w-]+/[\w-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+", used)
                self.assertTrue(found, (name, used))
                self.assertEqual(commits.setdefault(found[1], found[2]), found[2], (name, used))
            # The token is not left behind for what the job builds and runs.
            self.assertEqual(text.count("uses: actions/checkout@"), text.count("persist-credentials: false"), name)

    def test_caches_hold_what_others_made_and_have_a_key_for_each_state_of_it(self):
        """What is published is built of the sources alone, and fresh machines are fresh: neither has a cache."""
        found = {(name, job): part for name, text in FILES.items() for job, part in jobs(text).items() if "actions/cache@" in part}
        self.assertEqual(sorted(found), [("check.yml", "check"), ("check.yml", "docs"), ("nightly.yml", "soak"), ("test.yml", "test")])
        rust = {}
        for (name, job), part in found.items():
            keys = values(part, "key")
            self.assertEqual(len(keys), part.count("actions/cache@"), (name, job))
            for key in keys:
                # What is compiled belongs to one system; one without files in it would never change.
                self.assertIn("-bookworm-", key)
                patterns = re.findall(r"'([^']+)'", re.search(r"hashFiles\((.*)\)", key)[1])
                self.assertEqual([pattern for pattern in patterns if not list(TREE.glob(pattern))], [], (name, job, key))
                self.assertEqual([step for step in re.findall(r"steps\.keys\.outputs\.(\w+)", key) if f'echo "{step}=$(' not in part], [], (name, job, key))
            if " target\n" in part:
                rust[job] = keys[0]
                for needed in ["outputs.rust", "'Cargo.*'", "'crates/query/Cargo.*'"]:
                    self.assertIn(needed, keys[0])
                self.assertEqual(values(part, "run")[-1], "tools/keep-libraries target")
        # What one makes for clippy, the other does not: each has its own.
        self.assertEqual(len(set(rust.values())), 2, rust)
        for name in ["Cargo.toml", "Cargo.lock", "crates/query/Cargo.lock"]:
            self.assertTrue((TREE / name).is_file(), name)

    def test_cached_folders_are_those_that_are_used(self):
        part = jobs(FILES["test.yml"])["test"]
        files = ["arch.rs", "cache.rs", "initramfs.rs", "kernel.rs", "tree.rs"]
        sources = "".join((TREE / "crates/lab/src" / name).read_text(encoding="utf-8") for name in files)
        self.assertTrue('".cache/numapilot/lab"' in sources)
        folders = re.findall(r"~/\.cache/numapilot/lab/(.*)", part)
        self.assertEqual(folders, ["busybox-*", "kernel-*", "qemu-*", "root-*"])
        for folder in folders:
            self.assertTrue('"' + folder.rstrip("*") in sources, folder)
        for name in ["check.yml", "nightly.yml"]:
            self.assertEqual(re.findall(r"~/\.cache/numapilot/lab/(.*)", FILES[name]), folders, name)
        self.assertIn("mdbook_root=${XDG_CACHE_HOME:-$HOME/.cache}/numapilot/mdbook\n", (TREE / "tools/setup").read_text(encoding="utf-8"))
        self.assertIn("path: ~/.cache/numapilot/mdbook\n", FILES["check.yml"])

    def test_rights_are_few(self):
        writes = []
        for name, text in FILES.items():
            self.assertIn("\npermissions:\n  contents: read\n", text, name)
            writes += [(name, job) for job, part in jobs(text).items() if "permissions:" in part or "token" in part]
            for forbidden in ["pull_request_target", "secrets.", "workflow_run", "write-all"]:
                self.assertNotIn(forbidden, text, name)
            # What others name (branches, titles) is in no command's text.
            self.assertEqual([command for command in values(text, "run") if "${{" in command], [], name)
        self.assertEqual(writes, [("release.yml", "publish")])
        self.assertEqual(values(FILES["release.yml"], "tags"), ['["v*"]'])
        self.assertNotIn("pull_request", FILES["release.yml"])

    def test_tests_have_the_rights_that_they_must_have(self):
        """With CI=true, tests that bind memory or make namespaces fail where they cannot; and the unit is tried in a namespace."""
        for name, text in FILES.items():
            for job, part in jobs(text).items():
                runs_tests = any(goal in ("test", "check") for command in values(part, "run") for _, goal in goals(command))
                self.assertEqual("options: --privileged" in part, runs_tests or "tools/try-unit" in part, (name, job))

    def test_packages_that_are_published_were_installed_before(self):
        for name, made in {"nightly.yml": "make query packages", "release.yml": 'TAG="$GITHUB_REF_NAME" make release-dry-run'}.items():
            commands = values(jobs(FILES[name])["packages"], "run")
            self.assertIn("tools/try-packages --throwaway dist", commands[commands.index(made) :], name)
        self.assertEqual(values(jobs(FILES["release.yml"])["publish"], "needs"), ["[packages, packages-arm64]"])

    def test_packages_for_arm64_are_made_and_tried_as_the_others_are(self):
        """The workflow test tries those of x86-64 in a job of their own, on several distributions."""
        for name in ["release.yml", "test.yml"]:
            own, arm = (values(jobs(FILES[name])[job], "run") for job in ["packages", "packages-arm64"])
            tried = "tools/try-packages --throwaway dist"
            self.assertEqual([command for command in own if command != tried], [command for command in arm if command != tried], name)
            self.assertEqual(arm[-1], tried, name)

    def test_packages_are_checked_by_lintian_and_rpmlint(self):
        """With CI=true, tools/lint-packages fails without them."""
        for name, text in FILES.items():
            for job, part in jobs(text).items():
                makes = any(goal in ("packages", "release-dry-run") for command in values(part, "run") for _, goal in goals(command))
                self.assertEqual(" lintian rpmlint" in part, makes, (name, job))

    def test_what_both_processors_have_has_one_checksum(self):
        """The command that joins the lists, on folders with a file of each and one of both."""
        join, _ = values(jobs(FILES["release.yml"])["publish"], "run")
        for is_same in [True, False]:
            with self.subTest(is_same=is_same), tempfile.TemporaryDirectory() as folder:
                for name in ["dist", "arm64"]:
                    made = pathlib.Path(folder, name)
                    made.mkdir()
                    (made / f"of_{name}").write_text(name)
                    (made / "all").write_text("" if is_same else name)
                    sums = subprocess.run(["sha256sum", f"of_{name}", "all"], cwd=made, capture_output=True, text=True, check=True).stdout
                    (made / "SHA256SUMS").write_text(sums)
                ran = subprocess.run(["bash", "-e", "-c", join], cwd=folder, capture_output=True, text=True, check=False)
                self.assertEqual(ran.returncode == 0, is_same, ran.stderr)
                if is_same:
                    listed = [line.split()[1] for line in pathlib.Path(folder, "dist/SHA256SUMS").read_text(encoding="utf-8").splitlines()]
                    self.assertEqual(listed, ["all", "of_arm64", "of_dist"])

    def test_what_is_published_is_what_a_rehearsal_left(self):
        makefile = (TREE / "Makefile").read_text(encoding="utf-8")
        rehearsal = makefile.partition("\nrelease-dry-run:")[2].partition("\n\n")[0].splitlines()[1:]
        self.assertEqual([line.split()[0] for line in rehearsal], ["@$(RELEASED)", "@$(if", "@$(RELEASED)"])
        self.assertIn("$(MAKE) --no-print-directory query packages", rehearsal[1])
        packages, arm, publish = jobs(FILES["release.yml"]).values()
        self.assertEqual([values(part, "path") for part in [packages, arm]], [["dist/", "build/release/NOTES.md"], ["dist/"]])
        self.assertEqual(values(publish, "path"), ["dist", "arm64", "notes"])
        self.assertEqual(sorted(values(packages, "name") + values(arm, "name")), sorted(values(publish, "name")))
        _, command = values(publish, "run")
        self.assertTrue(command.endswith("--notes-file notes/NOTES.md dist/*"), command)
        self.assertIn('--draft --verify-tag --prerelease="$IS_CANDIDATE"', command)
        self.assertEqual(values(publish, "IS_CANDIDATE"), ["${{ contains(github.ref_name, '-') }}"])
        # Else a tag's text would be part of a command, or of what make expands.
        self.assertIn('RELEASED := tools/release $(if $(value TAG),--tag "$$TAG") $(RELEASE)\n', makefile)


class Libraries(unittest.TestCase):
    """tools/keep-libraries: what of a build folder a cache holds."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.target = pathlib.Path(folder.name)

    def make(self, *paths):
        for path in paths:
            (self.target / path).parent.mkdir(parents=True, exist_ok=True)
            (self.target / path).write_text("")

    def keep(self, *words):
        return subprocess.run([TREE / "tools/keep-libraries", *words], capture_output=True, text=True, check=False)

    def test_libraries_of_others_are_kept_and_all_else_goes(self):
        kept = ["CACHEDIR.TAG", ".rustc_info.json", "debug/deps/libserde-0a.rlib", "debug/deps/libserde_derive-0b.so", "debug/deps/serde-0a.d",
                "debug/build/zstd-sys-0c/out/libzstd.a", "debug/.fingerprint/serde-0a/lib-serde", "release/deps/libserde-1a.rmeta"]
        gone = ["tmp/file", "doc/index.html", "debug/numapilot", "debug/libnumapilot_capi.a", "debug/.cargo-lock", "debug/examples/move-0d",
                "debug/incremental/a/b", "debug/deps/libnumapilot_flows-0e.rlib", "debug/deps/numapilot-0f", "debug/deps/numapilot-0f.d",
                "debug/deps/all-1b", "debug/deps/make_trace-1c", "debug/build/numapilot-runtime-1d/out/track.so",
                "debug/.fingerprint/numapilot-1e/bin-numapilot", "release/numapilot-query"]
        self.make(*kept, *gone)
        ran = self.keep(self.target)
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        self.assertEqual(sorted(str(path.relative_to(self.target)) for path in self.target.rglob("*") if path.is_file()), sorted(kept))

    def test_another_folder_is_left_alone(self):
        self.make("debug/deps/all-1b")
        ran = self.keep(self.target)
        self.assertEqual(ran.returncode, 1)
        self.assertIn("no build folder of cargo", ran.stderr)
        self.assertTrue((self.target / "debug/deps/all-1b").is_file())
        self.assertEqual([self.keep(*words).returncode for words in [[], ["--help"], ["a", "b"]]], [2, 2, 2])

    def test_packages_of_this_tree_have_the_names_that_it_removes(self):
        manifests = [*TREE.glob("crates/*/Cargo.toml"), TREE / "crates/query/Cargo.toml"]
        names = [tomllib.loads(path.read_text(encoding="utf-8"))["package"]["name"] for path in manifests]
        self.assertGreater(len(names), 30)
        self.assertEqual([name for name in names if not name.startswith("numapilot")], [])


def load_tests(loader, tests, pattern):
    """With the tests of the tools that the workflow `release` calls."""
    return unittest.TestSuite([tests, loader.loadTestsFromNames(["test_abi", "test_release"])])


if __name__ == "__main__":
    unittest.main()
