"""Tests of tools/images.py: the container image of a tiny program is whole, the same twice, and runs. Run by tools/test_packages.py.

Needs gcc, readelf and dpkg.
"""

import gzip
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import elf  # noqa: E402
import images  # noqa: E402
import loading  # noqa: E402
import platforms  # noqa: E402
from packing import Entry, Failed, Release  # noqa: E402

packages = loading.tool("packages")
PROGRAM = '#include <math.h>\n#include <stdio.h>\nint main(int count, char **words) { return printf("%s %.0f\\n", words[1], sqrt(count * 50.0)) < 0; }\n'


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.folder = pathlib.Path(cls.scratch.name)
        cls.program = cls.folder / "program"
        command = ["gcc", "-O0", "-fno-builtin", "-x", "c", "-", "-o", cls.program, "-lm"]
        subprocess.run(command, input=PROGRAM, text=True, check=True)
        cls.elf = elf.read(cls.program)
        cls.release = Release("1.2.3", "1.2.3~git20260101.abcdef12", 1_767_225_600, "https://example.org/x", *elf.MACHINES[cls.elf.machine])
        cls.libraries = platforms.toolchain(cls.release.architecture, cls.release.triplet).libraries
        cls.own = {"usr/bin/numapilot": Entry(path=cls.program, mode=0o755), "etc/numapilot.toml": Entry(data=b"# settings\n")}
        cls.file = images.make(TREE, cls.own, cls.program, cls.elf.needed, cls.libraries, cls.release, cls.folder / "image.tar")
        with tarfile.open(cls.file) as archive:
            cls.blobs = {member.name: archive.extractfile(member).read() for member in archive.getmembers() if member.isfile()}

    def read(self, described):
        """A blob by its description, which has to fit."""
        data = self.blobs["blobs/" + described["digest"].replace(":", "/")]
        self.assertEqual((f"sha256:{hashlib.sha256(data).hexdigest()}", len(data)), (described["digest"], described["size"]))
        return data

    def manifest(self):
        (described,) = json.loads(self.blobs["index.json"])["manifests"]
        self.assertEqual(described["mediaType"], images.MANIFEST)
        return json.loads(self.read(described)), described

    def test_what_it_says_of_itself_fits(self):
        manifest, described = self.manifest()
        config = json.loads(self.read(manifest["config"]))
        self.assertEqual(json.loads(self.blobs["oci-layout"]), {"imageLayoutVersion": "1.0.0"})
        self.assertEqual((config["architecture"], described["platform"]["architecture"]), (self.release.architecture,) * 2)
        layers = [self.read(one) for one in manifest["layers"]]
        self.assertEqual(config["rootfs"]["diff_ids"], [f"sha256:{hashlib.sha256(gzip.decompress(data)).hexdigest()}" for data in layers])
        self.assertEqual(len(config["history"]), len(layers))
        self.assertEqual(config["created"], "2026-01-01T00:00:00Z")
        # What docker and podman load it as is what packaging/kubernetes/daemonset.yaml names.
        (loaded,) = json.loads(self.blobs["manifest.json"])
        self.assertEqual(loaded["RepoTags"], ["numapilot:1.2.3"])
        self.assertEqual([self.blobs[path] for path in loaded["Layers"]], layers)
        self.assertEqual(json.loads(self.blobs[loaded["Config"]]), config)

    def test_it_starts_what_the_containerfile_starts(self):
        manifest, _ = self.manifest()
        config = json.loads(self.read(manifest["config"]))["config"]
        text = (TREE / "packaging/container/Containerfile").read_text(encoding="utf-8")
        self.assertEqual(config["Entrypoint"], json.loads(re.search(r"^ENTRYPOINT (.*)$", text, re.MULTILINE)[1]))
        self.assertEqual(config["Cmd"][0], "balance")
        self.assertEqual(config["User"], "0")
        without = {target: entry for target, entry in self.own.items() if target.startswith("usr/")}
        with self.assertRaisesRegex(Failed, "the image lacks /etc/numapilot.toml"):
            images.make(TREE, without, self.program, self.elf.needed, self.libraries, self.release, self.folder / "other.tar")

    def unpacked(self, folder):
        """The root folder of a container."""
        manifest, _ = self.manifest()
        for number, described in enumerate(manifest["layers"]):
            path = pathlib.Path(folder, f"layer{number}.tar")
            path.write_bytes(gzip.decompress(self.read(described)))
            subprocess.run(["tar", "-xf", path, "-C", folder], check=True)
            path.unlink()
        return pathlib.Path(folder)

    def test_it_has_the_programs_libraries_with_their_licences(self):
        with tempfile.TemporaryDirectory() as folder:
            root = self.unpacked(folder)
            there = {path.name for path in root.rglob("*") if path.is_file()}
            self.assertLessEqual({"numapilot", "libc.so.6", "libm.so.6", pathlib.PurePosixPath(images.interpreter(self.program)).name}, there)
            self.assertTrue((root / "usr/share/doc/libc6/copyright").is_file())
            self.assertRegex((root / "usr/share/doc/numapilot/SYSTEM.txt").read_text(encoding="utf-8"), r"\n  glibc \d\S+\n")
            self.assertEqual((root / "tmp").stat().st_mode & 0o7777, 0o1777)

    @unittest.skipUnless(os.geteuid() == 0, "chroot needs root")
    def test_its_program_runs_with_nothing_but_what_is_in_it(self):
        with tempfile.TemporaryDirectory() as folder:
            self.unpacked(folder)
            made = subprocess.run(["chroot", folder, "/usr/bin/numapilot", "root is"], capture_output=True, text=True, check=False)
            self.assertEqual((made.returncode, made.stdout), (0, "root is 10\n"), made.stderr)

    def test_two_runs_give_the_same_bytes_and_nothing_is_this_users(self):
        own, needed = dict(reversed(self.own.items())), self.elf.needed[::-1]
        again = images.make(TREE, own, self.program, needed, self.libraries, self.release, self.folder / "again.tar")
        self.assertEqual(again.read_bytes(), self.file.read_bytes())
        manifest, _ = self.manifest()
        for described in manifest["layers"]:
            path = self.folder / "layer.tar"
            path.write_bytes(gzip.decompress(self.read(described)))
            with tarfile.open(path) as opened:
                self.assertEqual({(member.uid, member.gid, member.mtime) for member in opened.getmembers()}, {(0, 0, self.release.epoch)})

    def test_a_library_that_is_missing_or_of_no_package_is_an_error(self):
        with self.assertRaisesRegex(Failed, "there is no libodd.so.1 in "):
            images.make(TREE, self.own, self.program, ["libodd.so.1"], self.libraries, self.release, self.folder / "odd.tar")
        (self.folder / "libodd.so.1").write_bytes(b"")
        with self.assertRaisesRegex(Failed, "no package of this machine has .*/libodd.so.1"):
            images.make(TREE, self.own, self.program, ["libodd.so.1"], [self.folder, *self.libraries], self.release, self.folder / "odd.tar")


if __name__ == "__main__":
    unittest.main()
