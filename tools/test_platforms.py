"""Tests of packages for another processor than this machine's: tools/platforms.py, and packages of a tiny program for arm64. Run by tools/test_packages.py.

Needs Debian's cross compiler and qemu-user for the latter (tools/setup test).
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import unittest
from unittest import mock

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import elf  # noqa: E402
import loading  # noqa: E402
import platforms  # noqa: E402
import test_packages  # noqa: E402
from test_packages import output  # noqa: E402

packages = loading.tool("packages")
CROSS = ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-strip", "qemu-aarch64"]
# Another architecture than this machine's, whatever that is.
OTHER = ("riscv64", "riscv64-linux-gnu") if platforms.is_of_this_machine("arm64") else ("arm64", "aarch64-linux-gnu")


class Chosen(unittest.TestCase):
    def test_programs_of_this_machine_run_as_they_are(self):
        own = elf.MACHINES[elf.read(pathlib.Path(sys.executable).resolve()).machine]
        found = platforms.toolchain(*own)
        self.assertEqual((found.tool("strip"), found.runner), ("strip", ()))
        self.assertTrue(any((folder / "libc.so.6").is_file() for folder in found.libraries))

    def test_others_have_tools_of_their_own_and_run_in_qemu(self):
        with mock.patch.object(platforms.shutil, "which", return_value="/x"), mock.patch.object(pathlib.Path, "is_dir", return_value=True):
            found = platforms.toolchain(*OTHER)
            self.assertEqual(platforms.toolchain("ppc64el", "powerpc64le-linux-gnu").runner, ("qemu-ppc64le", "-L", "/usr/powerpc64le-linux-gnu"))
        processor = OTHER[1].partition("-")[0]
        self.assertEqual(found, platforms.Toolchain(f"{OTHER[1]}-", (f"qemu-{processor}", "-L", f"/usr/{OTHER[1]}"), (pathlib.Path(f"/usr/{OTHER[1]}/lib"),)))
        self.assertEqual(found.tool("objcopy"), f"{OTHER[1]}-objcopy")

    def test_what_is_missing_is_told_with_the_set_up_that_brings_it(self):
        with mock.patch.object(platforms.shutil, "which", return_value=None), self.assertRaises(packages.Failed) as raised:
            platforms.toolchain(*OTHER)
        for part in [f"packages for {OTHER[0]} need {OTHER[1]}-strip", "qemu-", "tools/setup packages ", "-unknown-linux-gnu"]:
            self.assertIn(part, str(raised.exception))

    def test_only_what_the_processor_has_is_described(self):
        own, other = packages.tables_of(TREE, "amd64"), packages.tables_of(TREE, "arm64")
        self.assertEqual(own.keys(), other.keys())
        self.assertTrue(all("except" not in table for table in [*own.values(), *other.values()]))
        self.assertIn("QEMU's plugin", own["numapilot"]["description"])
        self.assertNotIn("plugin", other["numapilot"]["description"])
        self.assertIn("needs x86-64", other["numapilot"]["description"])
        self.assertEqual(set(own["numapilot"]["suggests"]) - set(other["numapilot"]["suggests"]), {"qemu-user"})
        self.assertEqual([name for name in own if own[name]["files"] != other[name]["files"]], [])

    def test_make_builds_for_the_processor_that_is_named_on_its_command_line(self):
        words = ["make", "-n", "-C", TREE, "packages"]
        # Tests may run for a debug build, and under make: this asks for what a user would type.
        plain = {name: value for name, value in os.environ.items() if name not in ("BUILD_PROFILE", "MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        said = subprocess.run([*words, "TARGET=aarch64-unknown-linux-gnu"], capture_output=True, text=True, check=False, env=plain).stdout
        self.assertIn("tools/setup packages aarch64-unknown-linux-gnu\n", said)
        for package in ["numapilot", "numapilot-capi", "numapilot-python"]:
            self.assertIn(f"cargo build --release --locked --target aarch64-unknown-linux-gnu -p {package}\n", said)
        self.assertIn("CC=aarch64-linux-gnu-gcc ARCHIVE=", said)
        self.assertNotIn("cargo build --profile release", said)
        # As a variable of the environment it says nothing.
        environment = {"PATH": "/usr/bin:/bin", "TARGET": "aarch64-unknown-linux-gnu"}
        said = subprocess.run([*words, "-k"], capture_output=True, text=True, check=False, env=environment).stdout
        self.assertNotIn("aarch64", said)

    def test_set_up_refuses_what_no_packages_can_be_made_for(self):
        made = subprocess.run([FOLDER / "setup", "packages", "mips-unknown-linux-gnu"], capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 2)
        self.assertIn("no packages can be made for mips-unknown-linux-gnu", made.stderr)


class OfAll(unittest.TestCase):
    def test_a_package_for_all_processors_does_not_name_the_one_that_packed_it(self):
        with tempfile.TemporaryDirectory() as folder:
            made = []
            for processor in [1, 19]:
                path = pathlib.Path(folder, f"{processor}.rpm")
                path.write_bytes(b"\xed\xab\xee\xdb\3\0\0\0\0" + bytes([processor]) + b"rest")
                packages.rpms.of_all_processors(path)
                made.append(path.read_bytes())
            self.assertEqual(made, [b"\xed\xab\xee\xdb\3\0\0\0\0\xffrest"] * 2)
            other = pathlib.Path(folder, "other")
            other.write_bytes(b"something else")
            with self.assertRaisesRegex(packages.Failed, "does not begin as one"):
                packages.rpms.of_all_processors(other)
            self.assertEqual(other.read_bytes(), b"something else")


class Refused(unittest.TestCase):
    def test_a_program_with_a_library_for_another_processor(self):
        with tempfile.TemporaryDirectory() as folder:
            built, _ = test_packages.build(pathlib.Path(folder))
            other = elf.Elf(next(number for number, names in elf.MACHINES.items() if names == OTHER), [], {})
            with mock.patch.object(packages.elf, "embedded", return_value=[other]), self.assertRaisesRegex(packages.Failed, "for another processor"):
                packages.split(built / "numapilot", pathlib.Path(folder, "stripped"), pathlib.Path(folder, "debug"), 0)


@unittest.skipUnless(all(map(shutil.which, CROSS)), f"needs {', '.join(CROSS)}")
@unittest.skipIf(platforms.is_of_this_machine("arm64"), "arm64 is this machine's own")
class Arm(unittest.TestCase):
    """Packages of the tiny program, built for arm64."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        built, libraries = test_packages.build(folder, "aarch64-linux-gnu-")
        cls.built, cls.out = built, folder / "dist"
        cls.names = [file.name for file in packages.make(TREE, built, libraries, folder / "work", cls.out)]

    def one(self, pattern):
        (file,) = self.out.glob(pattern)
        return file

    def test_names_say_the_processor(self):
        for pattern in ["numapilot_*_arm64.deb", "numapilot-dbgsym_*_arm64.deb", "numapilot-daemon_*_all.deb", "numapilot-[0-9]*-1.aarch64.rpm",
                        "libnumapilot-devel-*.aarch64.rpm", "numapilot-daemon-*.noarch.rpm", "numapilot-*-aarch64-linux.tar.xz",
                        "numapilot-*-aarch64-linux-image.tar", "numapilot-*-cp39-abi3-manylinux_2_*_aarch64.whl"]:
            self.one(pattern)
        self.assertEqual([name for name in self.names if re.search("x86|amd64", name)], [])

    def test_fields_say_it_too_and_the_oldest_glibc(self):
        fields = output("dpkg-deb", "--field", self.one("numapilot_*.deb"), "Architecture", "Depends", "Suggests")
        self.assertRegex(fields, r"(?s)Architecture: arm64\n.*Depends: libc6 \(>= 2\.\d+\)\n")
        self.assertNotIn("qemu-user", fields)
        rpm = self.one("numapilot-[0-9]*.rpm")
        self.assertEqual(output("rpm", "-qp", "--queryformat", "%{ARCH} %{OS}", rpm), "aarch64 linux")
        self.assertRegex(output("rpm", "-qp", "--requires", rpm), r"(?m)^libc\.so\.6\(GLIBC_2\.\d+\)\(64bit\)$")

    def test_files_lie_in_the_processors_folders_and_are_stripped(self):
        listed = output("dpkg-deb", "--contents", self.one("libnumapilot0_*.deb"))
        self.assertIn("./usr/lib/aarch64-linux-gnu/libnumapilot.so.0", listed)
        with tempfile.TemporaryDirectory() as folder:
            output("dpkg-deb", "--extract", self.one("numapilot_*.deb"), folder)
            program = pathlib.Path(folder, "usr/bin/numapilot")
            self.assertEqual(elf.MACHINES[elf.read(program).machine][0], "arm64")
            self.assertNotIn(".symtab", output("readelf", "--wide", "--sections", program))
            # What the program itself printed, in QEMU.
            self.assertTrue(pathlib.Path(folder, "usr/share/man/man1/numapilot.1.gz").is_file())
            completions = pathlib.Path(folder, "usr/share/bash-completion/completions/numapilot").read_text(encoding="utf-8")
            self.assertEqual(completions, "# for bash\n")
        output(FOLDER / "compare-packages", self.out)

    def test_packages_for_all_processors_have_the_bytes_of_this_machines(self):
        with tempfile.TemporaryDirectory() as folder:
            built, libraries = test_packages.build(pathlib.Path(folder))
            packages.make(TREE, built, libraries, pathlib.Path(folder, "work"), pathlib.Path(folder, "own"))
            for pattern in ["numapilot-daemon_*_all.deb", "numapilot-daemon-*.noarch.rpm"]:
                (own,) = pathlib.Path(folder, "own").glob(pattern)
                self.assertEqual(own.read_bytes(), self.one(pattern).read_bytes(), pattern)
            output("rpm", "--checksig", "--nosignature", self.one("numapilot-daemon-*.noarch.rpm"))

    def test_the_image_is_for_the_processor(self):
        with tarfile.open(self.one("*-image.tar")) as archive:
            index = json.load(archive.extractfile("index.json"))
            self.assertEqual(index["manifests"][0]["platform"], {"architecture": "arm64", "os": "linux"})
            (loaded,) = json.load(archive.extractfile("manifest.json"))
            self.assertEqual(json.load(archive.extractfile(loaded["Config"]))["architecture"], "arm64")

    def test_libraries_for_this_machine_are_refused_beside_it(self):
        with tempfile.TemporaryDirectory() as folder:
            _, libraries = test_packages.build(pathlib.Path(folder, "own"))
            with self.assertRaisesRegex(packages.Failed, "is not for arm64"):
                packages.make(TREE, self.built, libraries, pathlib.Path(folder, "work"), pathlib.Path(folder, "out"))


if __name__ == "__main__":
    unittest.main()
