"""Tests of what tries the packages on other systems: tools/try-packages, tools/try-unit. Run by tools/test_packages.py."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent


class Tried(unittest.TestCase):
    def test_nothing_is_installed_unless_the_system_may_be_spoiled(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, status, said in [([folder], 1, "--throwaway"), ([], 2, "Usage: tools/try-packages"), (["--throwaway"], 2, "Usage"),
                                        (["--throwaway", folder], 1, "no packages" if os.geteuid() == 0 else "needs root")]:
                made = subprocess.run([FOLDER / "try-packages", *words], capture_output=True, text=True, check=False)
                self.assertEqual(made.returncode, status, words)
                self.assertIn(said, made.stderr, words)


    def test_the_unit_is_tried_in_a_system_of_its_own(self):
        with tempfile.TemporaryDirectory() as folder:
            for words, status, said in [([], 2, "Usage: tools/try-unit"), (["lab", folder, "--odd"], 2, "Usage"), (["lab", folder, "--root"], 2, "Usage"),
                                        ([f"{folder}/lab", folder], 1, "is not the lab's command"),
                                        (["/bin/true", folder], 1, "no packages" if os.geteuid() == 0 else "needs root")]:
                made = subprocess.run([FOLDER / "try-unit", *words], capture_output=True, text=True, check=False)
                self.assertEqual(made.returncode, status, words)
                self.assertIn(said, made.stderr, words)

    def test_the_unit_starts_nothing_that_a_small_system_lacks(self):
        """Debian's smallest has a shell, but neither `kill` nor `ps` as programs: they are procps'."""
        unit = (TREE / "packaging/systemd/numapilot.service").read_text(encoding="utf-8")
        started = re.findall(r"(?m)^Exec\w+=(\S+)", unit)
        self.assertEqual(set(started), {"/usr/bin/numapilot", "/bin/sh"})
