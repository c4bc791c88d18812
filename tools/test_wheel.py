"""Unit tests of what the Python package is built with: its metadata, and that wheels have the notices of the crates that are linked in. Run by
crates/cli/tests/packages.rs.

Another maturin stands in the place of the real one: nothing is compiled.
"""

import ast
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
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


if __name__ == "__main__":
    unittest.main()
