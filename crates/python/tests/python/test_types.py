"""The stubs are what the module has, and what people write with them checks."""

import subprocess
import sys
from pathlib import Path

import numapilot
import pytest

PACKAGE = Path(numapilot.__file__).parent


def run(*command):
    done = subprocess.run([sys.executable, "-m", *map(str, command)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_stubs_are_what_the_module_has(tmp_path):
    # An alias of several literals is a union to mypy, and none at run time.
    known = tmp_path / "known"
    known.write_text("numapilot.typing.Kind\nnumapilot.typing.View\n")
    run("mypy.stubtest", "numapilot", "--ignore-disjoint-bases", "--allowlist", known)


@pytest.mark.parametrize("what", ["scripts", "examples"])
def test_what_is_written_with_them_checks(root, tmp_path, what):
    paths = {"scripts": [PACKAGE / "scripts"], "examples": sorted((root / "examples").glob("*.py"))}[what]
    run("mypy", "--strict", "--cache-dir", tmp_path, "--ignore-missing-imports", *paths)
