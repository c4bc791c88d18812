"""Unit tests of tools/packages and tools/elf.py, and packages of a tiny program. Run by crates/cli/tests/packages.rs.

Needs gcc, binutils, dpkg-deb, rpm, GNU tar and xz.
"""

import gzip
import hashlib
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

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import elf  # noqa: E402
import loading  # noqa: E402
import packing  # noqa: E402
import third_party  # noqa: E402

# The same folders as the real ones: what tools/packages asks of the program, and of the libraries.
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
int numapilot_version(void) { return 1; }
int main(int count, char **words) {
    if (count > 2 && !strcmp(words[1], "man")) {
        char path[4096];
        mkdir(words[2], 0700);
        snprintf(path, sizeof path, "%s/numapilot.1", words[2]);
        FILE *page = fopen(path, "w");
        return !page || fputs(".TH numapilot 1\n", page) < 0 || fclose(page);
    }
    if (count > 2 && !strcmp(words[1], "completions")) return printf("# for %s\n", words[2]) < 0;
    return printf("numapilot VERSION\n") < 0;
}
"""


packages = loading.tool("packages")
VERSION = tomllib.loads((TREE / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]


def output(*command):
    """What a command prints; it must succeed."""
    environment = os.environ | {"LC_ALL": "C"}
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, env=environment).stdout


def build(folder, prefix=""):
    """Builds the program and libraries into folders such as tools/packages takes: (built, libraries). `prefix` of the programs of a cross compiler."""
    built, libraries = folder / "release", folder / "libraries"
    for path in [built, libraries / "capi", libraries / "replica"]:
        path.mkdir(parents=True)
    source = folder / "program.c"
    source.write_text(PROGRAM.replace("VERSION", VERSION), encoding="utf-8")
    cc = [f"{prefix}gcc", "-g", "-O1", "-Wl,--build-id"]
    output(*cc, "-o", built / "numapilot", source)
    output(*cc, "-shared", "-fPIC", "-o", built / "libnumapilot_native.so", source)
    for name in ["capi/libnumapilot", "replica/libnumapilot_replica"]:
        versions = ["-Wl,--version-script", TREE / "crates/capi/numapilot.map"] if "capi" in name else []
        output(*cc, "-shared", "-fPIC", f"-Wl,-soname,{os.path.basename(name)}.so.0", *versions, "-o", libraries / f"{name}.so.0", source)
        output(f"{prefix}gcc", "-g", "-c", "-o", folder / "object.o", source)
        output(f"{prefix}ar", "rcs", libraries / f"{name}.a", folder / "object.o")
    for name in ["capi/numapilot.pc", "replica/numapilot-replica.pc"]:
        (libraries / name).write_text("prefix=/usr/local\nlibdir=/usr/local/lib\nincludedir=${prefix}/include\nName: x\nVersion: 1.2.3\n", encoding="utf-8")
    return built, libraries


class Elf(unittest.TestCase):
    def test_needs_are_those_that_readelf_shows(self):
        for path in [sys.executable, shutil.which("gcc"), shutil.which("sh"), output("gcc", "-print-file-name=libgcc_s.so.1").strip()]:
            with self.subTest(path=path):
                found = elf.read(path)
                dynamic = output("readelf", "--wide", "--dynamic", path)
                self.assertEqual(found.needed, re.findall(r"\(NEEDED\)\s+Shared library: \[(.*)\]", dynamic))
                self.assertIn("libc.so.6", found.needed)
                needs = output("readelf", "--wide", "--version-info", path).partition("Version needs section")[2]
                self.assertEqual(sorted(found.versions), sorted(re.findall(r"File: (\S+)", needs)))
                self.assertEqual(sorted(name for names in found.versions.values() for name in names), sorted(re.findall(r"Name: (\S+)", needs)))
                defines = output("readelf", "--wide", "--version-info", path).partition("Version definition section")[2].partition("Version needs")[0]
                self.assertEqual(found.defines, re.findall(r"Flags: (?!BASE).*Index: .*Name: (\S+)", defines))
                self.assertEqual(found.build_id, (re.findall(r"Build ID: (\S+)", output("readelf", "--wide", "--notes", path)) or [""])[0])

    def test_other_files_are_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, data in {"text": b"#!/bin/sh\n", "empty": b"", "short": b"\x7fELF\2\1", "narrow": b"\x7fELF\1\1" + bytes(64)}.items():
                path = pathlib.Path(folder, name)
                path.write_bytes(data)
                with self.subTest(name=name), self.assertRaisesRegex(elf.NotElf, name):
                    elf.read(path)


    def test_libraries_inside_of_a_program_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            outer, inner = pathlib.Path(folder, "outer"), shutil.which("sh")
            # Beside a library there are the beginnings of an object file and of nothing.
            outer.write_bytes(pathlib.Path(shutil.which("gcc")).read_bytes() + elf.BEGINNING + bytes(60) + pathlib.Path(inner).read_bytes() + elf.BEGINNING)
            self.assertEqual(elf.embedded(outer), [elf.read(inner)])
            self.assertEqual(elf.embedded(inner), [])


class Fields(unittest.TestCase):
    def needs(self, versions):
        return packages.depends_of([elf.Elf(62, list(versions), {library: set(names) for library, names in versions.items()})])

    def test_depends_is_the_newest_version_of_each_package(self):
        self.assertEqual(self.needs({"libc.so.6": ["GLIBC_2.9", "GLIBC_2.34", "GLIBC_2.3.4"], "libm.so.6": ["GLIBC_2.29"]}), ["libc6 (>= 2.34)"])
        self.assertEqual(self.needs({"libm.so.6": ["GLIBC_2.35"], "libc.so.6": ["GLIBC_2.34"]}), ["libc6 (>= 2.35)"])
        self.assertEqual(self.needs({"libgcc_s.so.1": ["GCC_3.0", "GCC_4.2.0"], "libc.so.6": []}), ["libc6", "libgcc-s1 (>= 4.2)"])
        self.assertEqual(self.needs({"libc.so.6": ["GLIBC_2.34", "GLIBC_ABI_DT_RELR"]}), ["libc6 (>= 2.36)"])

    def test_what_is_not_known_is_an_error(self):
        for versions in [{"libnuma.so.1": ["libnuma_1.1"]}, {"libc.so.6": ["GLIBC_PRIVATE"]}, {"libc.so.6": ["GLIBC_ABI_NEW"]}]:
            with self.subTest(versions=versions), self.assertRaises(packages.Failed):
                self.needs(versions)

    def test_only_a_tagged_commit_has_the_version_of_the_release(self):
        day = 1_795_888_069
        self.assertEqual(packages.package_version("0.2.0", "abcd1234", ["v0.2.0"], False, day), "0.2.0")
        self.assertEqual(packages.package_version("0.2.0", "", [], False, day), "0.2.0")
        before = packages.package_version("0.2.0", "abcd1234", ["v0.1.0"], False, day)
        self.assertEqual(before, "0.2.0~git20261128.abcd1234")
        changed = packages.package_version("0.2.0", "abcd1234", ["v0.2.0"], True, day)
        self.assertEqual(changed, "0.2.0~git20261128.abcd1234.changed")
        candidate = packages.package_version("0.2.0-rc.1", "abcd1234", ["v0.2.0-rc.1"], False, day)
        self.assertEqual(candidate, "0.2.0~rc.1")
        for version in [before, changed, candidate]:
            output("dpkg", "--compare-versions", version, "lt", "0.2.0")
            output("dpkg", "--compare-versions", version, "gt", "0.1.0")

    def test_fields_without_a_value_are_left_out_and_long_ones_go_on(self):
        self.assertEqual(packages.control([("Package", "a"), ("Depends", ""), ("Version", "1")]), "Package: a\nVersion: 1\n")
        self.assertEqual(packages.description("short", "one\n\ntwo\n"), "short\n one\n .\n two")

    def test_pkg_config_files_are_told_their_place(self):
        text = "prefix=/usr/local\nlibdir=/usr/local/lib\nincludedir=${prefix}/include\n"
        self.assertEqual(packing.relocated(text, "${pcfiledir}/../..", "${prefix}/lib"),
                         "prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\nincludedir=${prefix}/include\n")
        with self.assertRaises(packages.Failed):
            packing.relocated("libdir=/x\n", "/usr", "/usr/lib")

    def test_installed_size_counts_whole_blocks(self):
        entries = {"usr/bin/a": packages.Entry(data=bytes(1025)), "usr/bin/b": packages.Entry(link="a"), "usr/c": packages.Entry(data=b"")}
        # Folders: usr/bin, usr and the root. Two blocks, a link.
        self.assertEqual(packages.kibibytes(entries), 3 + 2 + 1)


    def test_folders_of_this_machine_are_found_in_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program")
            path.write_bytes(b"\0/home/me/.cargo/registry/src/x.rs\0/usr/src/tree\0")
            self.assertEqual(packages.folders_named([path], ["/home/me/.cargo/registry", "/usr/src/tree"]), [(path, "/home/me/.cargo/registry")])


class ThirdParties(unittest.TestCase):
    """Notices of a program `p` that needs `one` (a choice that has MIT) and `two`, which needs `one`; `macro` and `tester` are in no program."""

    def metadata(self, expression):
        packages_of, nodes = [], []
        for name, needs, kind, said in [("p", ["one", "two", "macro", "tester"], "bin", "MIT"), ("one", [], "lib", "Apache-2.0/MIT"),
                                              ("two", ["one"], "lib", expression), ("macro", ["tester"], "proc-macro", "GPL-3.0"),
                                              ("tester", [], "lib", "GPL-3.0")]:
            manifest = self.folder / name / "Cargo.toml"
            packages_of.append({"id": name, "name": name, "version": "1.0.0", "source": None if name == "p" else "registry", "license": said,
                                "license_file": None, "manifest_path": str(manifest), "targets": [{"kind": [kind]}], "links": None, "authors": ["A. Uthor"]})
            nodes.append({"id": name, "deps": [{"pkg": need, "dep_kinds": [{"kind": "dev" if need == "tester" else None}]} for need in needs]})
        return {"packages": packages_of, "resolve": {"nodes": nodes}}

    def notices(self, expression="Apache-2.0 WITH LLVM-exception", exact=None, of_rust=""):
        return third_party.notices(third_party.linked(self.metadata(expression), "p", exact), of_rust)

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)
        files = {"one/LICENSE-MIT": "free for\nONE", "one/LICENSE-APACHE": "chosen against", "one/license.rs": "a source", "two/NOTICE": "free for ONE"}
        for path, text in files.items():
            (self.folder / path).parent.mkdir(exist_ok=True)
            (self.folder / path).write_text(text + "\n", encoding="utf-8")

    def test_what_is_linked_is_named_with_its_texts_each_once(self):
        text = self.notices()
        self.assertIn("one 1.0.0: Apache-2.0/MIT\n", text)
        self.assertIn("  LICENSE-MIT: text 1\n", text)
        self.assertIn("  NOTICE: text 1\n", text)
        self.assertEqual(text.count("Text 1 (LICENSE-MIT)\n\nfree for\nONE\n"), 1)
        for absent in ["chosen against", "a source", "macro", "tester", "Text 2"]:
            self.assertNotIn(absent, text)

    def test_a_library_without_a_text_has_that_of_its_licence(self):
        (self.folder / "two/NOTICE").unlink()
        text = self.notices("BSD-3-Clause")
        self.assertIn("two 1.0.0: BSD-3-Clause\n  https://crates.io/crates/two\n  BSD-3-Clause: text 2\n", text)
        self.assertRegex(text, r"\nText 2 \(BSD-3-Clause\)\n\nCopyright \(c\) A\. Uthor\n\nRedistribution and use in source and binary forms")
        self.assertRegex(self.notices("Zlib OR Apache-2.0"), r"\n\nCopyright \(c\) A\. Uthor\n\n +Apache License\n")
        with self.assertRaisesRegex(third_party.NotAllowed, "two 1.0.0 brings no text"):
            self.notices("Zlib")

    def test_of_a_workspace_only_what_this_program_needs_is_named(self):
        text = self.notices(exact={("p", "1.0.0"), ("two", "1.0.0")})
        self.assertIn("\ntwo 1.0.0: ", text)
        self.assertNotIn("\none 1.0.0: ", text)

    def test_the_standard_library_has_the_notices_that_the_compiler_brings(self):
        self.assertEqual(third_party.of_rust(self.folder), "")
        page = self.folder / "share/doc/rust/COPYRIGHT-library.html"
        page.parent.mkdir(parents=True)
        page.write_text("<html><head><title>x</title></head><body><h1>Copyright</h1>\n\n\n\n<p>A &amp; B</p> \n<pre>as\n  is</pre></body>", encoding="utf-8")
        of_rust = third_party.of_rust(self.folder)
        self.assertEqual(of_rust, "Copyright\n\nA & B\nas\n  is\n")
        self.assertTrue(self.notices(of_rust=of_rust).endswith("-\n" + of_rust))
        self.assertRegex(self.notices(), r"-\nRust's standard library: MIT OR Apache-2\.0, copyright .*\n$")

    def test_what_npm_puts_into_the_page_is_named_and_its_tools_are_not(self):
        (self.folder / "web").mkdir()
        entry = {"version": "2.0.0", "license": "ISC", "integrity": "sha512-AAAA"}
        packages_of = {"": {"name": "page"}, "node_modules/a": entry, "node_modules/a/node_modules/@b/c": entry, "node_modules/tool": entry | {"dev": True}}
        lock = self.folder / "web/package-lock.json"
        lock.write_text(json.dumps({"packages": packages_of}), encoding="utf-8")
        found = third_party.bundled(self.folder)
        self.assertEqual([package["name"] for package in found], ["a", "@b/c"])
        self.assertEqual(found[1]["manifest_path"], str(self.folder / "web/node_modules/a/node_modules/@b/c/package.json"))
        lock.write_text(json.dumps({"packages": packages_of | {"node_modules/d": {"version": "1.0.0"}}}), encoding="utf-8")
        with self.assertRaisesRegex(third_party.NotAllowed, "d 1.0.0 has the licence None"):
            third_party.bundled(self.folder)

    def test_one_expression_says_all_licences(self):
        self.assertEqual(third_party.together(["Apache-2.0/MIT", "MIT OR Apache-2.0"]), "MIT OR Apache-2.0")
        said = third_party.together(["MIT", "Zlib OR MIT", "MIT / Zlib", "MIT AND ISC", "(MIT OR Zlib) AND ISC"])
        self.assertEqual(said, "(MIT OR Apache-2.0) AND ((MIT OR Zlib) AND ISC) AND (MIT OR Zlib) AND ISC AND MIT")
        self.assertTrue(third_party.is_allowed(said))

    def test_the_container_image_names_what_its_program_has_and_no_other(self):
        """It has no package of which they are a part. `p` needs `one`, and `two` only with features that another program of the workspace asks for."""
        metadata = self.folder / "metadata.json"
        metadata.write_text(json.dumps(self.metadata("MIT")), encoding="utf-8")
        cargo = self.folder / "cargo"
        tree = r"p v1.0.0 (/src/p)\none v1.0.0\none v1.0.0 (*)\n"
        asks = 'case "$*" in *"--package p "*"--target x-host "*) printf'
        cargo.write_text(f"#!/bin/sh\ncase $1 in metadata) cat '{metadata}' ;; tree) {asks} '{tree}' ;; esac ;; esac\n", encoding="utf-8")
        rustc = self.folder / "rustc"
        rustc.write_text(f"#!/bin/sh\ncase $1 in -vV) printf 'release: 1\\nhost: x-host\\n' ;; *) echo '{self.folder}' ;; esac\n", encoding="utf-8")
        for program in [cargo, rustc]:
            program.chmod(0o755)
        environment = os.environ | {"CARGO": str(cargo), "RUSTC": str(rustc)}

        def said(*words):
            return subprocess.run([sys.executable, FOLDER / "third_party.py", *words], env=environment, capture_output=True, text=True, check=False)

        made = said("p")
        self.assertEqual((made.returncode, made.stderr), (0, ""))
        self.assertIn("\none 1.0.0: ", made.stdout)
        self.assertNotIn("\ntwo 1.0.0: ", made.stdout)
        self.assertRegex(made.stdout, r"-\nRust's standard library: ")
        for words, why in [(["q"], "third_party: q: cargo metadata names no crate"), ([], "usage: python3 tools/third_party.py PROGRAM\n")]:
            made = said(*words)
            self.assertEqual((made.returncode, made.stdout), (1, ""), made)
            self.assertIn(why, made.stderr)
        steps = (TREE / "packaging/container/Containerfile").read_text(encoding="utf-8")
        self.assertIn("\nRUN cargo build --release --locked -p numapilot\n", steps)
        self.assertIn("\nRUN python3 tools/third_party.py numapilot >THIRD-PARTY.txt\n", steps)
        self.assertRegex(steps, r"\nCOPY --from=build /src/THIRD-PARTY.txt /src/LICENSE-APACHE /src/LICENSE-MIT /usr/share/doc/numapilot/\n")

    def test_a_licence_that_is_not_known_is_an_error(self):
        for expression in ["GPL-3.0", "MIT AND GPL-2.0", "", None]:
            with self.subTest(expression=expression), self.assertRaisesRegex(third_party.NotAllowed, "two 1.0.0"):
                self.notices(expression)
        for expression in ["GPL-2.0 OR (MIT AND Zlib)", "(MIT OR GPL-3.0) AND Unicode-3.0"]:
            self.assertIn(expression, self.notices(expression))


class Scripts(unittest.TestCase):
    """What the daemon's packages run when they are installed, upgraded and removed, in a folder in the place of /run and /var, with a `systemctl` and Debian's
    helpers for it that note what they are asked."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = pathlib.Path(scratch.name)
        for folder in ["bin", "run/systemd/system", "var/lib/numapilot", "var/log/numapilot"]:
            (self.root / folder).mkdir(parents=True)
        (self.root / "var/lib/numapilot/history").touch()
        self.record = self.root / "var/lib/numapilot/changed.json"
        (self.root / "bin/rm").symlink_to(shutil.which("rm"))
        # A start of the daemon restores what its record says.
        restores = f"case $1 in start) rm '{self.record}' ;; esac"
        self.systemctl = self.fake("systemctl", "", restores)
        # Debian's system has them, with systemd or without.
        self.fake("deb-systemd-invoke", "invoke ", "")
        self.fake("deb-systemd-helper", "helper ", "")

    def fake(self, name, said, does):
        """A program in the place of the real one: it notes what it is asked, behind what is `said`, and fails."""
        path = self.root / "bin" / name
        path.write_text(f"#!/bin/sh\necho \"{said}$*\" >>'{self.root}/asked'\n{does}\nexit 1\n", encoding="utf-8")
        path.chmod(0o755)
        return path

    def asked(self, script, *words, killed=False):
        """What a script asks of these programs, which always fail: no script may fail for that. `killed`: a killed daemon has left its record."""
        text = (TREE / "packaging" / script).read_text(encoding="utf-8")
        # In whatever way a path is quoted: these tests may be root, and the scripts remove folders.
        text = re.sub(r"(?<![\w.])/(?=(?:run|var)/)", f"{self.root}/", text)
        said = []
        for shell in ["sh", "bash"]:
            noted = self.root / "asked"
            noted.write_text("", encoding="utf-8")
            if killed:
                self.record.touch()
            command = [shutil.which(shell), "-c", text, script, *words]
            made = subprocess.run(command, env={"PATH": str(self.root / "bin")}, capture_output=True, text=True, check=False)
            self.assertEqual((made.returncode, made.stdout + made.stderr), (0, ""), (shell, script, words))
            said.append(noted.read_text(encoding="utf-8").splitlines())
        self.assertEqual(said[0], said[1], (script, words))
        return said[0]

    def debian(self, script, *words):
        """The same of a script of Debian's package."""
        return self.asked(f"debian/numapilot-daemon.{script}", *words)

    def rpm(self, script, *words):
        """The same of one for rpm."""
        return self.asked(f"rpm/numapilot-daemon.{script}", *words)

    RELOAD = "--system daemon-reload"
    RESTART = "try-restart numapilot.service"
    STOP = "stop numapilot.service"
    GONE = [STOP, "--quiet disable numapilot.service"]
    # In the words of Debian's helpers.
    STATE = "helper update-state numapilot.service"
    UNLINKED = "helper disable numapilot.service"
    FORGOTTEN = "helper purge numapilot.service"

    def test_installing_starts_nothing(self):
        self.assertEqual(self.debian("postinst", "configure", ""), [self.STATE, self.RELOAD])
        self.assertEqual(self.rpm("post", "1"), [self.RELOAD])

    def test_an_upgrade_restarts_a_daemon_that_runs_and_stops_none_before(self):
        before = [self.debian("prerm", "upgrade", "2"), self.debian("postrm", "upgrade", "2")]
        self.assertEqual(before, [[], [self.RELOAD]])
        self.assertEqual(self.debian("postinst", "configure", "1"), [self.STATE, self.RELOAD, f"invoke {self.RESTART}"])
        # The new one's, then the old one's.
        self.assertEqual([self.rpm("post", "2"), self.rpm("preun", "1")], [[self.RELOAD], []])
        self.assertEqual(self.rpm("postun", "1"), [self.RELOAD, self.RESTART])
        self.assertTrue((self.root / "var/lib/numapilot/history").exists())

    def test_removing_stops_the_daemon_and_leaves_no_link(self):
        self.assertEqual(self.debian("prerm", "remove"), [f"invoke {self.STOP}", self.UNLINKED])
        self.assertEqual(self.rpm("preun", "0"), self.GONE)
        self.assertEqual(self.debian("postrm", "remove"), [self.RELOAD])
        self.assertEqual(self.rpm("postun", "0"), [self.RELOAD])
        self.assertTrue((self.root / "var/lib/numapilot/history").exists())

    @unittest.skipUnless(shutil.which("deb-systemd-helper"), "no deb-systemd-helper")
    def test_debians_helper_removes_the_link_of_an_enabled_unit_and_its_own_record(self):
        """The real one, in a folder in the place of the root folder: the unit is enabled by hand, then removed, then purged."""
        unit, link = self.root / "usr/lib/systemd/system/numapilot.service", self.root / "etc/systemd/system/multi-user.target.wants/numapilot.service"
        for path in [unit, link]:
            path.parent.mkdir(parents=True)
        shutil.copyfile(TREE / "packaging/systemd/numapilot.service", unit)
        link.symlink_to("/usr/lib/systemd/system/numapilot.service")
        (self.root / "bin/deb-systemd-helper").unlink()
        (self.root / "bin/deb-systemd-helper").symlink_to(shutil.which("deb-systemd-helper"))
        more = {"PATH": f"{self.root}/bin:/usr/bin:/bin", "DPKG_ROOT": str(self.root), "DPKG_MAINTSCRIPT_PACKAGE": "numapilot-daemon"}
        there = []
        for script, *words in [["postinst", "configure", ""], ["prerm", "remove"], ["postrm", "remove"], ["postrm", "purge"]]:
            text = (TREE / f"packaging/debian/numapilot-daemon.{script}").read_text(encoding="utf-8")
            text = re.sub(r"(?<![\w.])/(?=(?:run|var)/)", f"{self.root}/", text)
            subprocess.run(["sh", "-c", text, script, *words], env=more, check=True, capture_output=True)
            there.append((link.is_symlink(), bool(list(self.root.glob("var/lib/systemd/**/numapilot.service*")))))
        self.assertEqual(there, [(True, True), (False, True), (False, True), (False, False)])

    def test_what_a_killed_daemon_changed_is_restored_before_its_record_goes(self):
        reset, start, stop = "reset-failed numapilot.service", "start numapilot.service", f"invoke {self.STOP}"
        expected = {
            "debian/numapilot-daemon.prerm": ("remove", [stop, f"invoke {reset}", start, stop, self.UNLINKED]),
            "rpm/numapilot-daemon.preun": ("0", [self.STOP, reset, start, *self.GONE]),
        }
        for script, (word, asked) in expected.items():
            self.assertEqual(self.asked(script, word, killed=True), asked)
            self.assertFalse(self.record.exists())

    def test_a_purge_takes_state_and_journal_along(self):
        self.assertEqual(self.debian("postrm", "purge"), [self.RELOAD, self.FORGOTTEN])
        self.assertEqual([path for path in (self.root / "var").rglob("*") if "numapilot" in path.name], [])

    def test_without_a_running_systemd_nothing_is_started_or_stopped(self):
        shutil.rmtree(self.root / "run")
        for _ in range(2):
            disabled = self.GONE[1:] if self.systemctl.exists() else []
            self.assertEqual([self.debian("postinst", "configure", ""), self.debian("postinst", "configure", "1")], [[self.STATE], [self.STATE]])
            self.assertEqual([self.debian("prerm", "remove"), self.debian("postrm", "remove")], [[self.UNLINKED], []])
            self.assertEqual([self.rpm("post", "1"), self.rpm("preun", "0"), self.rpm("postun", "0"), self.rpm("postun", "1")], [[], disabled, [], []])
            # Nor where there is no systemd at all.
            self.systemctl.unlink(missing_ok=True)
        self.assertEqual(self.debian("postrm", "purge"), [self.FORGOTTEN])
        self.assertFalse((self.root / "var/lib/numapilot").exists())

    def test_every_script_is_tried_here(self):
        tables = tomllib.loads((TREE / "packaging/packages.toml").read_text(encoding="utf-8"))
        tried = {"scripts": ["postinst", "prerm", "postrm"], "rpm_scripts": ["post", "preun", "postun"]}
        for kind, names in tried.items():
            self.assertEqual({name: table[kind] for name, table in tables.items() if kind in table}, {"numapilot-daemon": names})


class OfThisTree(unittest.TestCase):
    def test_every_file_states_one_version(self):
        self.assertEqual(packages.versions_of(TREE)[0], VERSION)

    def test_another_version_is_told_with_its_file(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            for name in ["Cargo.toml", "crates/query/Cargo.toml", "crates/capi/include/numapilot.h", "packaging/kubernetes/daemonset.yaml"]:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(TREE / name, tree / name)
            for name, before, after in [
                ("crates/query/Cargo.toml", f'version = "{VERSION}"', 'version = "9.9.9"'),
                ("crates/capi/include/numapilot.h", "NUMAPILOT_API_VERSION ", "NUMAPILOT_API_VERSION 9"),
                ("packaging/kubernetes/daemonset.yaml", f"numapilot:{VERSION}", "numapilot:9.9.9"),
            ]:
                text = (tree / name).read_text(encoding="utf-8")
                (tree / name).write_text(text.replace(before, after, 1), encoding="utf-8")
                with self.subTest(name=name), self.assertRaisesRegex(packages.Failed, name):
                    packages.versions_of(tree)
                (tree / name).write_text(text, encoding="utf-8")

    def test_makefiles_take_the_version_from_cargo(self):
        for folder in ["crates/capi", "crates/replica/c"]:
            said = output("make", "--no-print-directory", "-s", "-C", TREE / folder, "version")
            self.assertEqual(said, VERSION + "\n", folder)

    def test_libraries_are_installed_and_removed_by_root_without_cargo(self):
        """Whoever has Rust from rustup has it below their own home: `sudo make install` did not find it. Nor may it fill a user's folders with root's files."""
        with tempfile.TemporaryDirectory() as folder:
            built, prefix = pathlib.Path(folder, "built"), pathlib.Path(folder, "prefix")
            (built / "release").mkdir(parents=True)
            words = [f"OUT={built}", f"TARGET={built}", f"PREFIX={prefix}"]
            environment = {"PATH": "/usr/bin:/bin", "SUDO_UID": "1000"}

            def made(library, *goals):
                command = ["make", "--no-print-directory", "-C", TREE / library, *words, *goals]
                return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

            without = made("crates/capi", "install")
            self.assertEqual(without.returncode, 2)
            self.assertIn("run make there as yourself first", without.stderr)
            for library, names in {"crates/capi": ["libnumapilot", "numapilot"], "crates/replica/c": ["libnumapilot_replica", "numapilot-replica"]}.items():
                for name in ["release/libnumapilot_capi.a", "replica.o", "readers.o", "nodes.o", f"{names[0]}.a", f"{names[0]}.so.0"]:
                    (built / name).touch()
                # Of a build for another prefix.
                (built / f"{names[1]}.pc").write_text("prefix=/opt\n", encoding="utf-8")
                ran = made(library, "install")
                self.assertEqual(ran.returncode, 0, ran.stderr)
                self.assertNotIn("cargo", ran.stdout)
                there = sorted(path.name for path in prefix.rglob("*") if not path.is_dir())
                header = names[0].removeprefix("lib") + ".h"
                self.assertEqual(there, sorted([f"{names[0]}.a", f"{names[0]}.so", f"{names[0]}.so.0", f"{names[1]}.pc", header]))
                self.assertIn(f"prefix={prefix}\n", (prefix / f"lib/pkgconfig/{names[1]}.pc").read_text(encoding="utf-8"))
                self.assertEqual(made(library, "uninstall").returncode, 0)
                self.assertEqual([path for path in prefix.rglob("*") if not path.is_dir()], [])

    def test_only_the_release_build_is_packed(self):
        """With BUILD_PROFILE=dev another build was made, and whatever lay in target/release was packed."""
        made = subprocess.run(["make", "-n", "-C", TREE, "BUILD_PROFILE=dev", "packages"], capture_output=True, text=True, check=False)
        self.assertEqual(made.returncode, 2)
        self.assertIn("packages have the release build", made.stderr)

    def test_descriptions_fit_into_terminals(self):
        tables = tomllib.loads((TREE / "packaging/packages.toml").read_text(encoding="utf-8"))
        for name, table in tables.items():
            self.assertLess(len(f"{name} - {table['summary']}"), 100, name)
            for one in [table, *table.get("except", {}).values()]:
                self.assertLessEqual(max(map(len, one["description"].splitlines())), 79, name)

    def test_every_source_is_there(self):
        tables = tomllib.loads((TREE / "packaging/packages.toml").read_text(encoding="utf-8"))
        for name, table in tables.items():
            for source in table["files"].values():
                if not source.startswith(("built/", "-> ")):
                    self.assertTrue(packing.matches(source, {"tree": TREE}), f"{name}: {source}")
            for script in table.get("scripts", []):
                output("sh", "-n", TREE / "packaging/debian" / f"{name}.{script}")

    def test_the_unit_starts_what_the_package_installs(self):
        unit = (TREE / "packaging/systemd/numapilot.service").read_text(encoding="utf-8")
        program = re.search(r"^ExecStart=/(\S+)", unit, re.MULTILINE)[1]
        configuration = re.search(r"^ConditionPathExists=/(\S+)", unit, re.MULTILINE)[1]
        tables = tomllib.loads((TREE / "packaging/packages.toml").read_text(encoding="utf-8"))
        layout = packages.debian_layout("x86_64-linux-gnu")
        targets = {layout.target(template, name) for name, table in tables.items() for template in table["files"]}
        self.assertLessEqual({program, configuration}, targets)
        self.assertEqual(tables["numapilot-daemon"]["conffiles"], ["/" + configuration])

    def test_an_image_is_not_built_from_what_was_built_here(self):
        """`COPY . .` sent target/, tens of gigabytes of it, along with the sources."""
        left_out = {line.removeprefix("**/") for line in (TREE / ".dockerignore").read_text(encoding="utf-8").splitlines() if not line.startswith("#")}
        ignored = {line.strip("/") for line in (TREE / ".gitignore").read_text(encoding="utf-8").splitlines()}
        self.assertLessEqual(ignored | {".git", "node_modules"}, left_out)
        tracked = subprocess.run(["git", "-C", TREE, "ls-files"], capture_output=True, text=True, check=False).stdout.splitlines()
        for path in tracked:
            folders = path.split("/")[:-1]
            self.assertFalse({"target", "node_modules"} & set(folders) or folders[:1] in (["build"], ["dist"]), f"{path} is in no image's sources")

    def test_a_container_may_see_other_processes_memory(self):
        """The runtimes' profiles of AppArmor and SELinux forbid it beside seccomp's and the capabilities."""
        ours = ["--security-opt seccomp=unconfined", "--security-opt apparmor=unconfined", "--security-opt label=disable"]
        for name in ["packaging/container/Containerfile", "docs/guides/containers.md"]:
            text = (TREE / name).read_text(encoding="utf-8")
            command = re.search(r"podman run --pid=host(?:.*\\\n)+.*", text)[0]
            for option in ours:
                self.assertIn(option, command, name)
        manifest = (TREE / "packaging/kubernetes/daemonset.yaml").read_text(encoding="utf-8")
        for profile in ["seccompProfile", "appArmorProfile"]:
            self.assertRegex(manifest, rf"\n {{12}}{profile}:\n(?: +#.*\n)* {{14}}type: Unconfined\n")
        self.assertRegex(manifest, r"\n {12}seLinuxOptions:\n {14}level: s0\n {14}type: spc_t\n")


class Made(unittest.TestCase):
    """Packages of the tiny program and of this tree, made twice: from other folders, in another order of time, under another umask."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        folder = pathlib.Path(cls.scratch.name)
        built, libraries = build(folder)
        again = folder / "again"
        shutil.copytree(built, again / "release", copy_function=shutil.copyfile)
        shutil.copytree(libraries, again / "libraries", copy_function=shutil.copyfile)
        (again / "release/numapilot").chmod(0o700)
        cls.first, cls.second, cls.built = folder / "first", folder / "second", built
        for out, where, umask in [(cls.first, folder, 0o022), (cls.second, again, 0o077)]:
            before = os.umask(umask)
            try:
                packages.make(TREE, where / "release", where / "libraries", where / "work", out)
            finally:
                os.umask(before)
        cls.debs = {file.name.partition("_")[0]: file for file in cls.first.glob("*.deb")}
        cls.rpms = {re.match(r"(.*?)-[0-9]", file.name)[1]: file for file in cls.first.glob("*.rpm")}

    def listed(self, name):
        """Files of a package with their modes and owners: (mode, owner, path), folders without."""
        lines = (line.split(maxsplit=5) for line in output("dpkg-deb", "--contents", self.debs[name]).splitlines())
        return {path.removeprefix("./"): (mode, owner) for mode, owner, _, _, _, path in lines if not mode.startswith("d")}

    def test_two_runs_give_the_same_bytes(self):
        sums = (self.first / "SHA256SUMS").read_text(encoding="utf-8")
        self.assertEqual(sums, (self.second / "SHA256SUMS").read_text(encoding="utf-8"))
        # Of eight packages each of two kinds, two tarballs, the wheel, the image and the bill of materials.
        self.assertEqual(len(sums.splitlines()), 2 * 8 + 2 + 3)
        self.assertNotIn("~", sums)
        output("sh", "-c", f"cd '{self.second}' && sha256sum --check --strict SHA256SUMS")

    def test_packages_are_those_of_the_table_and_their_symbols(self):
        self.assertEqual(sorted(self.debs), [
            "libnumapilot-dev", "libnumapilot-replica0", "libnumapilot-replica0-dbgsym", "libnumapilot0", "libnumapilot0-dbgsym", "numapilot",
            "numapilot-daemon", "numapilot-dbgsym"])
        fields = {name: output("dpkg-deb", "--field", file, "Version", "Depends", "Architecture") for name, file in self.debs.items()}
        version = re.search(r"Version: (\S+)", fields["numapilot"])[1]
        self.assertRegex(version, "^" + re.escape(VERSION))
        self.assertRegex(fields["numapilot"], r"Depends: libc6 \(>= 2\.\d+\)\n")
        self.assertIn(f"Depends: numapilot (= {version})\n", fields["numapilot-daemon"])
        self.assertIn("Architecture: all\n", fields["numapilot-daemon"])
        self.assertIn(f"Depends: libnumapilot0 (= {version})\n", fields["libnumapilot0-dbgsym"])
        self.assertIn(f"Depends: libnumapilot0 (= {version}), libnumapilot-replica0 (= {version})\n", fields["libnumapilot-dev"])
        for name, file in self.debs.items():
            described = output("dpkg-deb", "--field", file, "Description").splitlines()
            self.assertLessEqual(max(map(len, described)), 80, f"{name}: lintian's limit")
            maintainer, source = (output("dpkg-deb", "--field", file, field).strip() for field in ["Maintainer", "Source"])
            self.assertRegex(maintainer, r"^[^<>@]+ <[^<>@\s/]+@[^<>@\s/]+>$", name)
            self.assertEqual(source, "" if name == "numapilot" else "numapilot", name)

    def test_packages_for_rpm_have_the_same_contents(self):
        output(FOLDER / "compare-packages", self.first)
        with tempfile.TemporaryDirectory() as folder:
            # The sum of one file, the mode of one, and a package that is missing.
            for change, said in [("for f in usr/lib/*/*.so.0; do echo >>$f; done", "different files"),
                                 ("chmod 700 usr/lib/*/*.so.0", "different files"), ("sed -i s/Version:.*/Version:1/ DEBIAN/control", "has version 1,")]:
                shutil.rmtree(f"{folder}/x", ignore_errors=True)
                rpm = shutil.copy(self.rpms["libnumapilot-replica0"], folder)
                deb = shutil.copy(self.debs["libnumapilot-replica0"], folder)
                output("dpkg-deb", "--raw-extract", deb, f"{folder}/x")
                output("sh", "-c", f"cd '{folder}/x' && {change}")
                output("dpkg-deb", "--root-owner-group", "--build", f"{folder}/x", deb)
                made = subprocess.run([FOLDER / "compare-packages", folder], capture_output=True, text=True, check=False)
                self.assertEqual(made.returncode, 1, change)
                self.assertIn(said, made.stderr, change)
            os.unlink(rpm)
            made = subprocess.run([FOLDER / "compare-packages", folder], capture_output=True, text=True, check=False)
            self.assertIn("1 Debian packages and 0 for rpm", made.stderr)

    def test_packages_for_rpm_need_and_bring_what_elfdeps_says(self):
        elfdeps, libraries = "/usr/lib/rpm/elfdeps", self.built.parent / "libraries"
        for name, path in {"numapilot": self.built / "numapilot", "libnumapilot0": libraries / "capi/libnumapilot.so.0"}.items():
            for kind in ["requires", "provides"]:
                ours = {line for line in output("rpm", "-qp", f"--{kind}", self.rpms[name]).splitlines() if "(64bit)" in line}
                theirs = set(output(elfdeps, f"--{kind}", path).split()) - {"rtld(GNU_HASH)"}
                self.assertEqual(ours, theirs, f"{name} {kind}")
        self.assertIn("libnumapilot.so.0(NUMAPILOT_0.1)(64bit)", theirs)
        version = output("rpm", "-qp", "--queryformat", "%{VERSION}", self.rpms["numapilot"])
        for name, needed in [("numapilot-daemon", "numapilot"), ("libnumapilot-devel", "libnumapilot0"), ("numapilot-debuginfo", "numapilot")]:
            self.assertIn(f"{needed} = {version}\n", output("rpm", "-qp", "--requires", self.rpms[name]), name)
        self.assertIn("gcc-c++\n", output("rpm", "-qp", "--suggests", self.rpms["numapilot"]))

    def test_packages_for_rpm_say_what_their_distributions_tools_ask_for(self):
        provided = output("rpm", "-qp", "--provides", self.rpms["libnumapilot-devel"]).splitlines()
        self.assertLessEqual({"pkgconfig(numapilot) = 1.2.3", "pkgconfig(numapilot-replica) = 1.2.3"}, set(provided))
        with self.assertRaisesRegex(packages.Failed, "a.pc has no line `Version`"):
            packages.rpms.pkg_config({"lib/a.pc": packages.Entry(data=b"Name: x\n")})
        for name, file in self.rpms.items():
            packager, summary = output("rpm", "-qp", "--queryformat", "%{PACKAGER}\n%{SUMMARY}", file).splitlines()
            self.assertEqual((packager, summary[:1]), (packing.MAINTAINER, summary[:1].upper()), name)
        modes = output("rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", self.rpms["libnumapilot0"])
        self.assertIn("-rwxr-xr-x /usr/lib64/libnumapilot.so.0\n", modes)
        (library,) = [mode for path, mode in self.listed("libnumapilot0").items() if path.endswith("/libnumapilot.so.0")]
        self.assertEqual(library, ("-rw-r--r--", "root/root"), "lintian: shared-library-is-executable")

    def test_packages_for_rpm_name_no_machine_and_no_time_but_the_commits(self):
        epoch = packages.release_of(TREE, self.built).epoch
        query = "%{BUILDHOST} %{BUILDTIME} %{ARCH} %{LICENSE}\\n[%{FILEUSERNAME} %{FILEGROUPNAME} %{FILEMTIMES}\\n]"
        for name, file in self.rpms.items():
            (host, built, architecture, *licence), *files = (line.split() for line in output("rpm", "-qp", "--queryformat", query, file).splitlines())
            self.assertEqual((host, built), ("localhost", str(epoch)), name)
            self.assertEqual(architecture == "noarch", name == "numapilot-daemon", name)
            self.assertTrue(third_party.is_allowed(" ".join(licence)), licence)
            self.assertEqual({tuple(words) for words in files}, {("root", "root", str(epoch))}, name)
            data = file.read_bytes()
            for trace in [self.scratch.name, str(TREE)]:
                self.assertNotIn(trace.encode(), data, name)

    def test_packages_for_rpm_have_scripts_licences_and_configuration(self):
        scripts = output("rpm", "-qp", "--scripts", self.rpms["numapilot-daemon"])
        for kind in ["post", "preun", "postun"]:
            text = (TREE / f"packaging/rpm/numapilot-daemon.{kind}").read_text(encoding="utf-8")
            output("sh", "-n", TREE / f"packaging/rpm/numapilot-daemon.{kind}")
            self.assertIn(text.strip(), scripts)
        self.assertEqual(output("rpm", "-qp", "--scripts", self.rpms["libnumapilot0"]).count("/sbin/ldconfig"), 2)
        self.assertEqual(output("rpm", "-qp", "--configfiles", self.rpms["numapilot-daemon"]), "/etc/numapilot.toml\n")
        for name, file in self.rpms.items():
            kept = {f"/usr/share/licenses/{name}/{text}" for text in ["LICENSE-APACHE", "LICENSE-MIT"]}
            if not name.endswith("-debuginfo"):
                self.assertLessEqual(kept, set(output("rpm", "-qp", "--licensefiles", file).split()), name)
        # Folders go with the package: those of ours, and no others.
        folders = output("rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\\n]", self.rpms["numapilot"]).splitlines()
        folders = [line.split()[1] for line in folders if line.startswith("d")]
        self.assertIn("/usr/share/numapilot", folders)
        self.assertFalse([folder for folder in folders if "numapilot" not in folder])

    def test_the_bill_of_materials_goes_along(self):
        (whole,) = self.first.glob("*.cdx.json")
        bill = json.loads(whole.read_text(encoding="utf-8"))
        ours = {made["name"]: made for made in bill["components"] if made["purl"].startswith("pkg:generic/") and "numapilot" in made["name"]}
        self.assertEqual(sorted(ours), ["libnumapilot", "libnumapilot_native", "libnumapilot_replica", "numapilot"])
        with tempfile.TemporaryDirectory() as folder:
            output("dpkg-deb", "--extract", self.debs["numapilot"], folder)
            program = pathlib.Path(folder, "usr/bin/numapilot").read_bytes()
            own = json.loads(pathlib.Path(folder, "usr/share/doc/numapilot/sbom.cdx.json").read_text(encoding="utf-8"))
        self.assertEqual(ours["numapilot"]["hashes"], [{"alg": "SHA-256", "content": hashlib.sha256(program).hexdigest()}])
        named = {(made["name"], made["version"]) for made in own["components"] if made["purl"].startswith("pkg:cargo/")}
        tree = output("cargo", "tree", "--locked", "--manifest-path", TREE / "Cargo.toml", "--package", "numapilot", "--edges", "normal,no-proc-macro",
                      "--prefix", "none", "--format", "{p}")
        crates = {tuple(line.split()[:2]) for line in tree.splitlines() if line and "(/" not in line}
        self.assertEqual(named, {(name, version.removeprefix("v")) for name, version in crates})

    def test_every_package_has_its_changelog_and_licences(self):
        for name, file in self.debs.items():
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                output("dpkg-deb", "--extract", file, folder)
                doc = pathlib.Path(folder, "usr/share/doc", name)
                if name.endswith("-dbgsym"):
                    self.assertEqual(os.readlink(doc), name.removesuffix("-dbgsym"))
                    continue
                self.assertTrue((doc / "copyright").is_file())
                said = gzip.decompress((doc / "changelog.gz").read_bytes()).decode()
                version = output("dpkg-deb", "--field", file, "Version").strip()
                signed = r"\n\n  \* .*\n\n -- .* <.*@.*>  \w+, \d+ \w+ \d+ [\d:]+ \+0000\n$"
                self.assertRegex(said, rf"^numapilot \({re.escape(version)}\) unstable; urgency=medium" + signed)
                notices = doc / "THIRD-PARTY.gz"
                self.assertEqual(notices.is_file(), name in ["numapilot", "libnumapilot0", "libnumapilot-dev"])
                if notices.is_file():
                    self.assertRegex(gzip.decompress(notices.read_bytes()).decode(), r"(?s)\nzstd-sys .*  zstd/LICENSE: text \d+\n.*Copyright \(c\) Meta")

    def test_shared_libraries_are_known_to_dpkg_and_the_loader(self):
        for name, library in {"libnumapilot0": "libnumapilot", "libnumapilot-replica0": "libnumapilot_replica"}.items():
            with self.subTest(name=name), tempfile.TemporaryDirectory() as folder:
                output("dpkg-deb", "--raw-extract", self.debs[name], folder)
                self.assertRegex(pathlib.Path(folder, "DEBIAN/shlibs").read_text(encoding="utf-8"), rf"^{library} 0 {name} \(>= {re.escape(VERSION)}.*\)\n$")
                self.assertEqual(pathlib.Path(folder, "DEBIAN/triggers").read_text(encoding="utf-8"), "activate-noawait ldconfig\n")
                (path,) = pathlib.Path(folder, "usr/lib").rglob("*.so.0")
                self.assertEqual(elf.read(path).soname, f"{library}.so.0")

    def test_files_are_roots_and_where_they_belong(self):
        listed = self.listed("numapilot")
        self.assertEqual(listed["usr/bin/numapilot"], ("-rwxr-xr-x", "root/root"))
        for path in ["share/man/man1/numapilot.1.gz", "share/bash-completion/completions/numapilot", "share/zsh/vendor-completions/_numapilot",
                     "share/fish/vendor_completions.d/numapilot.fish", "share/numapilot/models/opteron-8385.toml", "share/doc/numapilot/copyright",
                     "share/doc/numapilot/docs/start/install.md"]:
            self.assertEqual(listed.get("usr/" + path), ("-rw-r--r--", "root/root"), path)
        # A document's pictures lie where it looks for them.
        for page in TREE.glob("docs/**/*.md"):
            for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
                path = os.path.normpath(page.parent.relative_to(TREE) / picture)
                self.assertIn(f"usr/share/doc/numapilot/{path}", listed, page)
        daemon = self.listed("numapilot-daemon")
        self.assertLessEqual({"etc/numapilot.toml", "usr/lib/systemd/system/numapilot.service"}, set(daemon))
        self.assertFalse([path for path in daemon if path.endswith(".wants/numapilot.service")])
        libraries = self.listed("libnumapilot-dev")
        self.assertTrue([path for path in libraries if path.endswith("-linux-gnu/libnumapilot.so -> libnumapilot.so.0")], libraries)

    def test_symbols_are_found_by_the_build_id_of_the_stripped_program(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["numapilot", "numapilot-dbgsym"]:
                output("dpkg-deb", "--extract", self.debs[name], folder)
            program = pathlib.Path(folder, "usr/bin/numapilot")
            build_id = elf.read(program).build_id
            self.assertEqual(build_id, elf.read(self.built / "numapilot").build_id)
            symbols = pathlib.Path(folder, "usr/lib/debug/.build-id", build_id[:2], build_id[2:] + ".debug")
            self.assertNotIn(".debug_info", output("readelf", "--wide", "--sections", program))
            self.assertNotIn(".symtab", output("readelf", "--wide", "--sections", program))
            self.assertIn(".debug_info", output("readelf", "--wide", "--sections", symbols))
            self.assertIn(build_id, output("dpkg-deb", "--field", self.debs["numapilot-dbgsym"], "Build-Ids"))
            self.assertEqual(output(program, "--version"), f"numapilot {VERSION}\n")

    def test_sums_and_configuration_are_known_to_dpkg(self):
        with tempfile.TemporaryDirectory() as folder:
            output("dpkg-deb", "--raw-extract", self.debs["numapilot-daemon"], folder)
            output("sh", "-c", f"cd '{folder}' && md5sum --check --strict DEBIAN/md5sums")
            # dpkg compares configuration files with sums of its own: an administrator's change is no damage.
            self.assertNotIn("etc/numapilot.toml", pathlib.Path(folder, "DEBIAN/md5sums").read_text(encoding="utf-8"))
            self.assertEqual(pathlib.Path(folder, "DEBIAN/conffiles").read_text(encoding="utf-8"), "/etc/numapilot.toml\n")
            for script in ["postinst", "prerm", "postrm"]:
                self.assertTrue(os.access(pathlib.Path(folder, "DEBIAN", script), os.X_OK), script)

    def test_the_tarball_has_no_names_of_folders_of_this_machine(self):
        (archive,) = [file for file in self.first.glob("*.tar.xz") if "-debug" not in file.name]
        with tarfile.open(archive) as opened:
            members = opened.getmembers()
            names = {member.name.partition("/")[2] for member in members}
            self.assertEqual([member.name for member in members], sorted(member.name for member in members))
            self.assertEqual({(member.uid, member.gid) for member in members}, {(0, 0)})
            self.assertEqual(len({member.mtime for member in members}), 1)
            self.assertEqual({member.mode for member in members if member.isdir()}, {0o755})
            top = archive.name.removesuffix(".tar.xz")
            pc = opened.extractfile(f"{top}/lib/pkgconfig/numapilot.pc").read().decode()
            readme = opened.extractfile(f"{top}/README.md").read().decode()
        self.assertIn("prefix=${pcfiledir}/../..\nlibdir=${prefix}/lib\n", pc)
        self.assertIn(archive.name, readme)
        # Else GNU tar, run by root, gives the folders of the prefix the archive's owner and mode.
        self.assertRegex(readme, r"tar -xf \S+ --strip-components=1 --no-overwrite-dir -C /usr/local\n")
        self.assertNotIn("{", readme)
        self.assertLessEqual({"bin/numapilot", "share/man/man1/numapilot.1", "share/zsh/site-functions/_numapilot", "lib/libnumapilot.so",
                              "share/doc/numapilot/THIRD-PARTY-numapilot.txt"}, names)
        self.assertNotIn("lib/systemd/system/numapilot.service", names)

    def test_a_program_of_another_version_is_refused(self):
        with self.assertRaisesRegex(packages.Failed, "build it again"):
            packages.check_versions(self.built, "9.9.9", 0)

    def test_a_program_without_a_build_id_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program")
            output("gcc", "-Wl,--build-id=none", "-o", path, "-x", "c", pathlib.Path(self.scratch.name, "program.c"))
            with self.assertRaisesRegex(packages.Failed, "no build id"):
                packages.split(path, path.with_name("stripped"), path.with_name("debug"), 0)


def load_tests(loader, tests, pattern):
    """With those of what else packages are made and checked with."""
    return unittest.TestSuite([tests, loader.loadTestsFromNames(["test_images", "test_lint", "test_platforms", "test_tried"])])


if __name__ == "__main__":
    unittest.main()
