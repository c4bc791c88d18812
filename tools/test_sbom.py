"""Tests of tools/sbom.py: a bill of materials of this tree's crates is whole and well-formed, and made-up ones say what they should. Run by
crates/cli/tests/packages.rs.

The form is checked by hand: the rules of CycloneDX 1.5's schema that our bills can break.
"""

import copy
import datetime
import hashlib
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import sbom  # noqa: E402
import third_party  # noqa: E402

HASHES = {"SHA-256": 64, "SHA-512": 128}
# https://github.com/package-url/purl-spec: type, optional namespace, name, version, qualifiers.
PURL = re.compile(r"pkg:[a-z]+(/[A-Za-z0-9.~_%-]+)+(@[A-Za-z0-9.~_%-]+)?(\?[a-z]+=[A-Za-z0-9.~_%-]+(&[a-z]+=[A-Za-z0-9.~_%-]+)*)?")


def problems(bill):
    """What is wrong with a bill, as texts."""
    found = [f"{key} is {bill.get(key)}" for key, value in {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}.items() if bill.get(key) != value]
    if not re.fullmatch(r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", bill["serialNumber"]):
        found.append(f"serial number {bill['serialNumber']}")
    datetime.datetime.strptime(bill["metadata"]["timestamp"], "%Y-%m-%dT%H:%M:%SZ")
    components = [bill["metadata"]["component"], *bill["components"]]
    for made in components:
        found += component_problems(made)
    references = [made["bom-ref"] for made in components]
    found += [f"{reference} is there twice" for reference in set(references) if references.count(reference) > 1]
    needs = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    if sorted(needs) != sorted(references) or len(needs) != len(bill["dependencies"]):
        found.append("components and dependencies name different things")
    left, seen = [components[0]["bom-ref"]], set()
    while left:
        reference = left.pop()
        if reference not in needs:
            found.append(f"{reference} is needed, and is no component")
        elif reference not in seen:
            seen.add(reference)
            left += needs[reference]
    return found + [f"nothing needs {reference}" for reference in references if reference not in seen]


def component_problems(made):
    """What is wrong with a component."""
    name, found = made.get("name"), []
    allowed = {"type", "bom-ref", "name", "version", "licenses", "purl", "hashes", "externalReferences", "description"}
    if not set(made) <= allowed or made.get("type") not in ("application", "library") or not name:
        found.append(f"{name}: {sorted(made)}")
    if not PURL.fullmatch(made["purl"]):
        found.append(f"{name}: package URL {made['purl']}")
    for entry in made.get("hashes", []):
        if set(entry) != {"alg", "content"} or not re.fullmatch(rf"[0-9a-f]{{{HASHES.get(entry['alg'], 0)}}}", entry["content"]):
            found.append(f"{name}: {entry}")
    if [set(entry) for entry in made["licenses"]] != [{"expression"}] or "/" in made["licenses"][0]["expression"]:
        found.append(f"{name}: {made['licenses']}")
    found += [f"{name}: {entry}" for entry in made.get("externalReferences", []) if set(entry) != {"type", "url"} or not entry["url"].startswith("https://")]
    return found


def package(name, version="1.0.0", needs=(), **more):
    """A package and its node, as `cargo metadata` has them."""
    made = {"id": name, "name": name, "version": version, "source": "registry", "license": "MIT", "targets": [{"kind": ["lib"]}], "repository": None}
    return made | more, {"id": name, "deps": [{"pkg": need, "dep_kinds": [{"kind": kind}]} for need, kind in needs]}


class Made(unittest.TestCase):
    """Of a program `p`, whose own library `own` needs a crate; `p` also needs a crate with a library of C inside. A macro and tests' crates are in none."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        folder = pathlib.Path(scratch.name)
        self.file = folder / "p"
        self.file.write_bytes(b"program")
        lock = folder / "Cargo.lock"
        lock.write_text('[[package]]\nname = "outer"\nversion = "1.0.0"\nchecksum = "' + "a" * 64 + '"\n[[package]]\nname = "p"\nversion = "1.0.0"\n')
        pairs = [
            package("p", source=None, needs=[("own", None), ("z-sys", None), ("macro", None), ("tester", "dev"), ("maker", "build")]),
            package("own", source=None, needs=[("outer", None)]),
            package("outer", needs=[("inner", None)], license="MIT/Apache-2.0", repository="https://example.org/outer"),
            package("inner"),
            package("z-sys", "2.0.0+z.1.5", links="z", license="Zlib"),
            package("macro", targets=[{"kind": ["proc-macro"]}], needs=[("maker", None)]), package("tester"), package("maker"),
        ]
        self.metadata = {"packages": [made for made, _ in pairs], "resolve": {"nodes": [node for _, node in pairs]}}
        self.program = sbom.Program("numapilot", "application", self.file, self.metadata, "p", None, lock, ("libc6 (>= 2.34)",))
        self.library = sbom.Program("lib", "library", self.file, None, "", None, None, ())
        self.in_page = [{"name": "@a/b", "version": "3.0.0", "license": "ISC", "integrity": "sha512-" + "A" * 86 + "=="}]

    def bill(self, programs=None):
        return json.loads(sbom.document("all", "1.0.0~rc1", "https://example.org", 0, programs or [self.program, self.library], self.in_page, "1.95.0"))

    def test_what_is_inside_is_named_and_nothing_else(self):
        bill = self.bill()
        self.assertEqual(problems(bill), [])
        named = {made["purl"]: made for made in bill["components"]}
        crates = {purl for purl in named if purl.startswith("pkg:cargo/")}
        self.assertEqual(crates, {"pkg:cargo/outer@1.0.0", "pkg:cargo/inner@1.0.0", "pkg:cargo/z-sys@2.0.0%2Bz.1.5"})
        self.assertEqual(named["pkg:cargo/outer@1.0.0"], {
            "type": "library", "bom-ref": "pkg:cargo/outer@1.0.0", "name": "outer", "version": "1.0.0", "purl": "pkg:cargo/outer@1.0.0",
            "licenses": [{"expression": "MIT OR Apache-2.0"}], "hashes": [{"alg": "SHA-256", "content": "a" * 64}],
            "externalReferences": [{"type": "vcs", "url": "https://example.org/outer"}]})
        self.assertEqual(named["pkg:generic/z@1.5"]["licenses"], [{"expression": "Zlib"}])
        self.assertEqual(named["pkg:npm/%40a/b@3.0.0"]["hashes"], [{"alg": "SHA-512", "content": "0" * 128}])
        self.assertEqual(named["pkg:github/rust-lang/rust@1.95.0"]["name"], "std")
        self.assertIn("2.34 or later", named["pkg:deb/debian/libc6"]["description"])
        self.assertEqual(named["pkg:generic/numapilot@1.0.0~rc1"]["hashes"], [{"alg": "SHA-256", "content": hashlib.sha256(b"program").hexdigest()}])
        self.assertEqual(bill["metadata"]["timestamp"], "1970-01-01T00:00:00Z")

    def test_who_needs_whom_is_told_across_our_own_crates(self):
        needs = {entry["ref"]: set(entry["dependsOn"]) for entry in self.bill()["dependencies"]}
        self.assertEqual(needs["packages"], {"pkg:generic/numapilot@1.0.0~rc1", "pkg:generic/lib@1.0.0~rc1"})
        crates = {reference for reference in needs["pkg:generic/numapilot@1.0.0~rc1"] if reference.startswith("pkg:cargo/")}
        self.assertEqual(crates, {"pkg:cargo/outer@1.0.0", "pkg:cargo/z-sys@2.0.0%2Bz.1.5"})
        self.assertEqual(needs["pkg:cargo/outer@1.0.0"], {"pkg:cargo/inner@1.0.0"})
        self.assertEqual(needs["pkg:cargo/z-sys@2.0.0%2Bz.1.5"], {"pkg:generic/z@1.5"})
        self.assertFalse({"pkg:npm/%40a/b@3.0.0", "pkg:github/rust-lang/rust@1.95.0"} & needs["pkg:generic/lib@1.0.0~rc1"])

    def test_the_same_input_in_another_order_gives_the_same_bytes(self):
        before, shuffled = self.bill(), copy.deepcopy(self.metadata)
        draw = random.Random(7)
        for rows in [shuffled["packages"], shuffled["resolve"]["nodes"], *(node["deps"] for node in shuffled["resolve"]["nodes"])]:
            draw.shuffle(rows)
        self.metadata.update(shuffled)
        self.assertEqual(json.dumps(self.bill([self.library, self.program])), json.dumps(before))
        self.file.write_bytes(b"another program")
        self.assertNotEqual(self.bill()["serialNumber"], before["serialNumber"])

    def test_what_is_wrong_is_found(self):
        for change, said in [
            (lambda bill: bill["components"].pop(0), "different things"),
            (lambda bill: bill["components"].append(bill["components"][0]), "twice"),
            (lambda bill: bill["dependencies"][0]["dependsOn"].append("x"), "x is needed"),
            (lambda bill: [entry["dependsOn"].clear() for entry in bill["dependencies"]], "nothing needs pkg:cargo/inner"),
            (lambda bill: bill["components"][0].update(purl="pkg:cargo/a b@1"), "package URL"),
            (lambda bill: bill["components"][0].update(hashes=[{"alg": "SHA-256", "content": "abc"}]), "abc"),
            (lambda bill: bill["components"][0].update(licenses=[{"expression": "MIT/Apache-2.0"}]), "MIT/Apache"),
            (lambda bill: bill.update(serialNumber="1"), "serial"),
        ]:
            bill = self.bill()
            change(bill)
            self.assertIn(said, " ".join(problems(bill)))


class OfThisTree(unittest.TestCase):
    def test_the_bill_of_the_command_is_whole(self):
        """Each crate has a checksum, and a licence that is allowed."""
        host = re.search(r"host: (\S+)", subprocess.run(["rustc", "-vV"], check=True, capture_output=True, text=True).stdout)[1]
        command = ["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host, "--manifest-path", str(TREE / "Cargo.toml")]
        metadata = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        program = sbom.Program("numapilot", "application", TREE / "LICENSE-MIT", metadata, "numapilot", None, TREE / "Cargo.lock", ("libgcc-s1",))
        bill = json.loads(sbom.document("numapilot", "1.0.0", "https://example.org", 0, [program], third_party.bundled(TREE), "1.95.0"))
        self.assertEqual(problems(bill), [])
        crates = [made for made in bill["components"] if made["purl"].startswith("pkg:cargo/")]
        locked = {(one["name"], one["version"]): one.get("checksum") for one in tomllib.loads((TREE / "Cargo.lock").read_text(encoding="utf-8"))["package"]}
        self.assertGreater(len(crates), 50)
        for made in crates:
            self.assertEqual(made["hashes"], [{"alg": "SHA-256", "content": locked[made["name"], made["version"]]}])
            self.assertTrue(third_party.is_allowed(made["licenses"][0]["expression"]), made)
        self.assertIn("zstd", [made["name"] for made in bill["components"] if made["purl"].startswith("pkg:generic/")])


if __name__ == "__main__":
    unittest.main()
