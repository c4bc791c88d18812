"""Tests of tools/lint-packages, and of what it tells lintian and rpmlint. Run by tools/test_packages.py.

Other programs stand in the place of lintian and rpmlint.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import third_party  # noqa: E402

RPMLINT = "#!/bin/sh\ncase $1 in --version) echo {version}; exit 0 ;; esac\necho '=== rpmlint session starts ==='\n{rest}\n"


class Lint(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        for folder in ["bin", "dist"]:
            (self.root / folder).mkdir()
        for program in ["bash", "dirname", "mktemp", "rm", "cat", "grep", "sed", "cut"]:
            (self.root / "bin" / program).symlink_to(f"/usr/bin/{program}" if os.path.exists(f"/usr/bin/{program}") else f"/bin/{program}")
        for name in ["numapilot_1_amd64.deb", "libnumapilot0-1-1.x86_64.rpm"]:
            (self.root / "dist" / name).touch()

    def program(self, name, text):
        (self.root / "bin" / name).write_text(text, encoding="utf-8")
        (self.root / "bin" / name).chmod(0o755)

    def asked(self, *words, **more):
        """Exit status and messages of the tool."""
        command = [self.root / "bin/bash", FOLDER / "lint-packages", *words]
        made = subprocess.run(command, env={"PATH": str(self.root / "bin")} | more, capture_output=True, text=True, check=False)
        return made.returncode, made.stdout + made.stderr

    def test_what_they_find_fails_and_is_shown(self):
        dist = self.root / "dist"
        self.program("lintian", "#!/bin/sh\nexit 0\n")
        self.program("rpmlint", RPMLINT.format(version="2.4.0", rest="exit 0"))
        status, said = self.asked(dist)
        self.assertEqual(status, 0, said)
        self.assertIn("1 Debian packages and 1 for rpm: nothing found", said)
        for rest in ["echo 'libnumapilot0.x86_64: W: odd thing'", "echo 'libnumapilot0.x86_64: E: odd thing'; exit 64", "echo odd thing; exit 1"]:
            self.program("rpmlint", RPMLINT.format(version="2.4.0", rest=rest))
            status, said = self.asked(dist)
            self.assertEqual(status, 1, rest)
            self.assertIn("odd thing", said)
            self.assertIn("rpmlint found what is above", said)
        self.program("lintian", "#!/bin/sh\necho 'W: numapilot: odd'\nexit 2\n")
        status, said = self.asked(dist)
        self.assertEqual(status, 1)
        self.assertIn("lintian rpmlint found what is above", said)

    def test_what_is_not_checked_is_told_and_in_ci_an_error(self):
        status, said = self.asked(self.root / "dist")
        self.assertEqual(status, 0, said)
        for program in ["lintian", "rpmlint"]:
            self.assertIn(f"{program} is not installed, so ", said)
        self.assertEqual(said.count("NOT CHECKED"), 2)
        status, said = self.asked(self.root / "dist", CI="true")
        self.assertEqual(status, 1)
        self.assertIn("apt-get install lintian rpmlint", said)

    def test_the_configuration_is_of_rpmlint_2(self):
        self.program("lintian", "#!/bin/sh\nexit 0\n")
        self.program("rpmlint", RPMLINT.format(version="1.11", rest="exit 0"))
        status, said = self.asked(self.root / "dist")
        self.assertEqual(status, 1)
        self.assertIn("rpmlint has version '1.11'", said)

    def test_other_words_are_refused(self):
        (self.root / "empty").mkdir()
        for words, status, text in [([], 2, "Usage: tools/lint-packages FOLDER"), (["--help"], 2, "Usage"), ([self.root / "empty"], 1, "has no packages")]:
            found, said = self.asked(*words)
            self.assertEqual(found, status, words)
            self.assertIn(text, said)


class Explained(unittest.TestCase):
    def test_each_filter_has_its_reason_above_it(self):
        text = (TREE / "packaging/rpmlint.toml").read_text(encoding="utf-8")
        filters = tomllib.loads(text)["Filters"]
        self.assertGreater(len(filters), 10)
        for one in filters:
            re.compile(one)
            self.assertRegex(one, r"[EW]: [a-z0-9-]+", "a filter names what it is of")
        reasons = re.findall(r"\n    # .*(?:\n    # .*)*((?:\n    '.*',)+)", text)
        self.assertEqual(sum(block.count("\n") for block in reasons), len(filters))

    def test_rpmlint_knows_the_licences_that_packages_may_have(self):
        configured = tomllib.loads((TREE / "packaging/rpmlint.toml").read_text(encoding="utf-8"))
        self.assertEqual(sorted(configured["ValidLicenses"]), sorted(name for name in third_party.ALLOWED if " WITH " not in name))
        exceptions = {name.partition(" WITH ")[2] for name in third_party.ALLOWED if " WITH " in name}
        self.assertEqual(set(configured["ValidLicenseExceptions"]), exceptions)

    def test_each_override_of_lintian_is_in_a_package_and_has_its_reason(self):
        tables = tomllib.loads((TREE / "packaging/packages.toml").read_text(encoding="utf-8"))
        files = {path.name.removesuffix(".lintian-overrides"): path for path in (TREE / "packaging/debian").glob("*.lintian-overrides")}
        self.assertEqual(set(files), {name for name, table in tables.items() if table.get("overrides")})
        for name, path in files.items():
            lines = path.read_text(encoding="utf-8").splitlines()
            self.assertTrue(lines[0].startswith("# "), path)
            self.assertTrue(all(line.startswith(("# ", f"{name}: ")) for line in lines), path)


if __name__ == "__main__":
    unittest.main()
