"""maturin, with the notices of the crates that are linked in: THIRD-PARTY.txt, which pyproject.toml lists beside our own licences, is written before maturin
looks for these. What is linked is known to cargo alone, so the tree has no such file. A source distribution has the one that was written for it, and nothing
that writes it.
"""

import os
import pathlib
import subprocess
import sys

import maturin

FOLDER = pathlib.Path(__file__).resolve().parent.parent
NOTICES = FOLDER / "THIRD-PARTY.txt"
# maturin takes it for a mistake that pyproject.toml names another backend.
os.environ.setdefault("MATURIN_NO_MISSING_BUILD_BACKEND_WARNING", "1")

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_sdist = maturin.get_requires_for_build_sdist
get_requires_for_build_editable = maturin.get_requires_for_build_editable


def write_notices():
    """Brings THIRD-PARTY.txt up to date. Ends the build where there is none: a package without it may not be handed on."""
    tool = FOLDER.parent.parent / "tools/third_party.py"
    # An unpacked source distribution lies anywhere: what is two folders above it is not ours, and is not run.
    if FOLDER.parts[-2:] != ("crates", "python") or not tool.is_file():
        if not NOTICES.is_file():
            sys.exit(f"{NOTICES} is missing, and tools/third_party.py, which writes it, is not here: build in numapilot's source tree")
        return
    made = subprocess.run([sys.executable, str(tool), "numapilot-python"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    if made.returncode != 0:
        sys.exit(f"{tool} says no licences of what is linked in (exit status {made.returncode}; its own message is above)")
    part = NOTICES.with_name(f"{NOTICES.name}.{os.getpid()}")
    part.write_bytes(made.stdout)
    part.replace(NOTICES)


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    write_notices()
    return maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory, config_settings=None):
    write_notices()
    return maturin.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    write_notices()
    return maturin.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    write_notices()
    return maturin.build_editable(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory, config_settings=None):
    write_notices()
    return maturin.build_sdist(sdist_directory, config_settings)
