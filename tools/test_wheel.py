"""Unit tests of what the Python package is built with: its metadata, and that wheels have the notices of the crates that are linked in; and of the wheel that
`make packages` makes (tools/wheels.py). Run by crates/cli/tests/packages.rs.

Another maturin stands in the place of the real one: nothing is compiled.
"""

import ast
import base64
import csv
import email
import hashlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
import zipfile

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import elf  # noqa: E402
import wheels  # noqa: E402
from packing import Failed, Release  # noqa: E402

PACKAGE = TREE / "crates/python"
# Each of its functions prints its name, what it was given, and what lies where maturin looks for licences.
MATURIN = """
import pathlib
def said(name):
    def function(*words):
        path = pathlib.Path("THIRD-PARTY.txt")
        print(name, words, path.read_text().strip() if path.is_file() else "no notices")
    return function
for name in ["get_requires_for_build_wheel", "get_requires_for_build_sdist", "get_requires_for_build_editable", "prepare_metadata_for_build_wheel",
             "prepare_metadata_for_build_editable", "build_wheel", "build_editable", "build_sdist"]:
    globals()[name] = said(name)
"""


class Metadata(unittest.TestCase):
    def setUp(self):
        self.pyproject = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))

    def test_wheels_state_our_licences_and_the_python_that_they_are_built_for(self):
        project = self.pyproject["project"]
        workspace = tomllib.loads((TREE / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]
        self.assertEqual(project["license"], workspace["package"]["license"])
        self.assertEqual(project["urls"], {"Repository": workspace["package"]["repository"]})
        self.assertEqual(project["license-files"], ["LICENSE-*", "THIRD-PARTY.txt"])
        texts = {path.name: path.read_bytes() for path in PACKAGE.glob("LICENSE-*")}
        self.assertEqual(texts, {name: (TREE / name).read_bytes() for name in ["LICENSE-APACHE", "LICENSE-MIT"]})
        major, minor = re.fullmatch(r">=(\d+)\.(\d+)", project["requires-python"]).groups()
        self.assertIn(f"abi3-py{major}{minor}", workspace["dependencies"]["pyo3"]["features"])
        for path in [*PACKAGE.glob("python/**/*.py"), *PACKAGE.glob("backend/*.py"), FOLDER / "third_party.py"]:
            ast.parse(path.read_bytes(), path, feature_version=(int(major), int(minor)))

    def test_the_backend_is_where_pip_looks_for_it_and_goes_along_with_the_sources(self):
        system = self.pyproject["build-system"]
        (folder,) = system["backend-path"]
        backend = f"{folder}/{system['build-backend']}.py"
        self.assertTrue((PACKAGE / backend).is_file(), backend)
        self.assertIn({"path": backend, "format": "sdist"}, self.pyproject["tool"]["maturin"]["include"])


class Notices(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        (self.root / "site").mkdir()
        (self.root / "site/maturin.py").write_text(MATURIN, encoding="utf-8")

    def place(self, name):
        """Puts the backend into a folder of this name, in the place of the package."""
        package = self.root / name
        (package / "backend").mkdir(parents=True)
        shutil.copyfile(PACKAGE / "backend/with_notices.py", package / "backend/with_notices.py")
        return package

    def write_tool(self, package, code):
        tools = package.parent.parent / "tools"
        tools.mkdir(exist_ok=True)
        (tools / "third_party.py").write_text(code, encoding="utf-8")

    def asked(self, package, call):
        """What a call of the backend gives, as pip makes it: (exit status, what it prints, what it complains of)."""
        environment = os.environ | {"PYTHONPATH": f"{package}/backend:{self.root}/site", "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-c", f"import with_notices; with_notices.{call}"]
        made = subprocess.run(command, cwd=package, env=environment, capture_output=True, text=True, check=False)
        return made.returncode, made.stdout.strip(), made.stderr

    def test_they_are_there_before_maturin_looks_for_licences(self):
        calls = {"prepare_metadata_for_build_wheel('m')": "('m', None)", "prepare_metadata_for_build_editable('m')": "('m', None)",
                 "build_wheel('w', {}, 'm')": "('w', {}, 'm')", "build_editable('w')": "('w', None, None)", "build_sdist('s')": "('s', None)"}
        for number, (call, words) in enumerate(calls.items()):
            package = self.place(f"{number}/crates/python")
            (package / "THIRD-PARTY.txt").write_text("those of an earlier build\n", encoding="utf-8")
            self.write_tool(package, "import sys\nprint('notices of', *sys.argv[1:])\n")
            self.assertEqual(self.asked(package, call), (0, f"{call.partition('(')[0]} {words} notices of numapilot-python", ""))
            self.assertEqual(sorted(path.name for path in package.iterdir()), ["THIRD-PARTY.txt", "backend"])

    def test_without_them_nothing_is_built(self):
        package = self.place("tree/crates/python")
        self.write_tool(package, "import sys\nprint('a part')\nsys.exit('third_party: one 1.0.0 brings no text')\n")
        status, said, complained = self.asked(package, "build_wheel('w')")
        self.assertEqual((status, said), (1, ""))
        self.assertIn("third_party: one 1.0.0 brings no text\n", complained)
        self.assertIn("third_party.py says no licences of what is linked in (exit status 1", complained)
        self.assertFalse((package / "THIRD-PARTY.txt").exists())

    def test_a_source_distribution_has_its_own_and_runs_nothing_of_the_folders_above(self):
        package = self.place("unpacked/numapilot-0.1.0")
        self.write_tool(package, "print('made by somebody else')\n")
        status, said, complained = self.asked(package, "build_wheel('w')")
        self.assertEqual((status, said), (1, ""))
        self.assertIn("THIRD-PARTY.txt is missing", complained)
        (package / "THIRD-PARTY.txt").write_text("those of the sources\n", encoding="utf-8")
        self.assertEqual(self.asked(package, "build_wheel('w')"), (0, "build_wheel ('w', None, None) those of the sources", ""))

    def test_git_and_images_leave_them_out(self):
        for name in [".gitignore", ".dockerignore"]:
            self.assertIn("crates/python/THIRD-PARTY.txt*", [line.strip("/") for line in (TREE / name).read_text(encoding="utf-8").splitlines()], name)


class Packed(unittest.TestCase):
    """The wheel that `make packages` makes, of a library that is none."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        self.library = self.folder / "library.so"
        self.library.write_bytes(b"its bytes")

    def make(self, name="out", processor="x86_64", versions=("GLIBC_2.9", "GLIBC_2.34")):
        out = self.folder / name
        out.mkdir()
        release = Release("1.2.3", "1.2.3~git20260101.abcdef12", 1_767_225_601, "https://example.org", "amd64", f"{processor}-linux-gnu")
        return wheels.make(TREE, self.library, elf.Elf(62, ["libc.so.6"], {"libc.so.6": set(versions)}), "notices\n", release, out)

    def test_versions_sort_as_the_packages_do(self):
        expected = {"1.2.3": "1.2.3", "1.2.3~rc.1": "1.2.3rc1", "1.2.3~beta.2": "1.2.3b2", "1.2.3~git20260101.abcdef12": "1.2.3.dev20260101+abcdef12",
                    "1.2.3~rc.1~git20260101.abcdef12.changed": "1.2.3rc1.dev20260101+abcdef12.changed"}
        self.assertEqual({version: wheels.version_of(version) for version in expected}, expected)
        for version in ["1.2", "1.2.3~odd.1", "1.2.3~rc.1.2"]:
            with self.subTest(version=version), self.assertRaises(Failed):
                wheels.version_of(version)

    def test_the_name_says_python_glibc_and_processor(self):
        self.assertEqual(self.make().name, "numapilot-1.2.3.dev20260101+abcdef12-cp39-abi3-manylinux_2_34_x86_64.whl")
        arm = self.make("arm", "aarch64", ["GLIBC_2.17", "GLIBC_2.4", "GLIBC_PRIVATE"])
        self.assertTrue(arm.name.endswith("-cp39-abi3-manylinux_2_17_aarch64.whl"), arm.name)
        self.assertTrue(self.make("old", versions=["GLIBC_2.2.5"]).name.endswith("-manylinux_2_17_x86_64.whl"))
        with self.assertRaisesRegex(Failed, "asks for no version of glibc"):
            self.make("none", versions=[])

    def test_its_record_names_each_file_with_its_sum(self):
        with zipfile.ZipFile(self.make()) as archive:
            self.assertIsNone(archive.testzip())
            (name,) = [name for name in archive.namelist() if name.endswith("/RECORD")]
            rows = {row[0]: row[1:] for row in csv.reader(archive.read(name).decode().splitlines())}
            self.assertEqual(sorted(rows), sorted(archive.namelist()))
            self.assertEqual(rows.pop(name), ["", ""])
            for path, (hashed, size) in rows.items():
                data = archive.read(path)
                self.assertEqual(hashed, "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("="), path)
                self.assertEqual(int(size), len(data), path)
            self.assertEqual(archive.read(wheels.MODULE), b"its bytes")
            python = {path.relative_to(PACKAGE / "python").as_posix() for path in PACKAGE.glob("python/**/*") if path.is_file() and path.suffix != ".pyc"}
            self.assertLessEqual(python, set(rows))
            modes = {member.filename: member.external_attr >> 16 for member in archive.infolist()}
            self.assertEqual((modes[wheels.MODULE], modes["numapilot/__init__.py"]), (0o100755, 0o100644))

    def test_its_metadata_is_that_of_the_project(self):
        project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        with zipfile.ZipFile(self.make()) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
            said = email.message_from_bytes(archive.read(name))
            self.assertEqual((said["Name"], said["Version"]), (project["name"], "1.2.3.dev20260101+abcdef12"))
            self.assertEqual((said["License-Expression"], said["Requires-Python"]), (project["license"], project["requires-python"]))
            self.assertEqual(said.get_all("Classifier"), project["classifiers"])
            self.assertEqual(len(said.get_all("Requires-Dist")), len(project["optional-dependencies"]["test"]))
            folder = name.partition("/")[0]
            for licence in said.get_all("License-File"):
                self.assertTrue(archive.read(f"{folder}/licenses/{licence}"), licence)
            self.assertEqual(archive.read(f"{folder}/licenses/THIRD-PARTY.txt"), b"notices\n")
            self.assertIn("Tag: cp39-abi3-manylinux_2_34_x86_64\n", archive.read(f"{folder}/WHEEL").decode())

    def test_the_module_is_where_the_package_imports_it_from(self):
        module = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["maturin"]["module-name"]
        self.assertEqual(wheels.MODULE, module.replace(".", "/") + ".abi3.so")
        library = tomllib.loads((PACKAGE / "Cargo.toml").read_text(encoding="utf-8"))
        self.assertEqual((wheels.PACKAGE, wheels.LIBRARY), (library["package"]["name"], f"lib{library['lib']['name']}.so"))

    def test_two_runs_give_the_same_bytes(self):
        first = self.make("one")
        os.utime(self.library, (0, 0))
        self.library.chmod(0o600)
        self.assertEqual(self.make("two").read_bytes(), first.read_bytes())


if __name__ == "__main__":
    unittest.main()
