"""Traces to test on, and what the C scripts say of them: made by package.rs, which runs this."""

import os
from pathlib import Path

import numapilot
import pytest

TRACES = sorted(Path(os.environ["NUMAPILOT_TEST_TRACES"]).glob("*.numatrace"))
C_TABLES = Path(os.environ["NUMAPILOT_TEST_C_TABLES"])
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(params=TRACES, ids=lambda path: path.stem)
def path(request):
    """Each trace's folder in turn."""
    return request.param


@pytest.fixture
def trace(path):
    """Each trace in turn, open."""
    with numapilot.open(path) as trace:
        yield trace


@pytest.fixture(scope="session")
def mg():
    """A recording of a real program."""
    with numapilot.open(ROOT / "testdata/traces/mg.numatrace") as trace:
        yield trace


@pytest.fixture(scope="session")
def c_tables():
    return C_TABLES


@pytest.fixture(scope="session")
def root():
    return ROOT
