"""The worked examples on recordings of the programs that they are about."""

import subprocess
import sys

import pytest

# What each must find, in words of its own: the published finding.
EXAMPLES = {
    "facerec": ["basis", "written by thread", "replicate"],
    "streamcluster": ["block", "node 0 serves", "interleave"],
    "psearchy": ["hash_table", "its allocator", "local"],
    "webserver": ["pool_memory", "process", "pin"],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_find_what_was_published(root, name, tmp_path):
    recording = root / f"testdata/traces/{name}.numatrace"
    command = [sys.executable, root / f"examples/{name}.py", recording, "--pictures", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for words in EXAMPLES[name]:
        assert words in done.stdout, done.stdout
    assert list(tmp_path.glob("*.svg"))
