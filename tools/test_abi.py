"""Unit tests of tools/abi, c_header.py and interface.py. Run by tools/test_workflows.py, because a release asks tools/abi.

Needs gcc and readelf.
"""

import contextlib
import dataclasses
import io
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import unittest
from unittest import mock

FOLDER = pathlib.Path(__file__).resolve().parent
TREE = FOLDER.parent
sys.path.insert(0, str(FOLDER))
sys.dont_write_bytecode = True

import c_header  # noqa: E402
import interface  # noqa: E402
import loading  # noqa: E402
from interface import Change, Interface, Member, Struct  # noqa: E402

HEADER = """
#include <stdint.h>
#define NUMAPILOT_OK 0
#define NUMAPILOT_NEVER UINT64_MAX
#define NUMAPILOT_TEXT "none"
// A comment with struct lone { int a; };
typedef struct numapilot_point { /* its place: */ uint8_t kind; double x; double y; const char *name; } numapilot_point;
typedef struct numapilot_row {
  struct numapilot_point at[2];
  int (*next)(struct numapilot_row *row, const char *word);
} numapilot_row;
enum numapilot_kind { NUMAPILOT_KIND_ONE = 1, NUMAPILOT_KIND_TEN = 10, };
enum {
  /* Of a row. */
  NUMAPILOT_ROW_FLAT = 1,
  NUMAPILOT_ROW_OLD = 4
};
const char *numapilot_message(void);
int numapilot_row_at(uint64_t number, const struct numapilot_row *row,
                     struct numapilot_row **rows, struct numapilot_point);
typedef struct numapilot_batch { int count; } numapilot_batch;
static inline int numapilot_next(numapilot_batch *batch) {
  return numapilot_row_at(0, 0, 0, (numapilot_point){0});
}
"""


abi = loading.tool("abi")


def struct(size, *fields):
    """A struct of (name, offset, size) with whole numbers."""
    return Struct(size, 8, {name: Member(offset, of, f"uint{8 * of}_t") for name, offset, of in fields})


GROWING = struct(24, ("type_size", 0, 8), ("site", 8, 4), ("reserved", 12, 4), ("bytes", 16, 8))
FIXED = struct(16, ("time_ns", 0, 8), ("reserved", 8, 8))
OLD = Interface("0.1.0", "libn.so.0", {"open": ("N_0.1", "int (int)"), "close": ("N_0.1", "int (int)")}, {"row": GROWING, "access": FIXED},
                {"kind": {"KIND_HEAP": 1}}, {"OK": 0, "NUMAPILOT_API_VERSION": 256})


def changed(**parts):
    """The old interface with some names of its parts replaced; those that are None are gone."""
    made = {part: {name: value for name, value in {**getattr(OLD, part), **names}.items() if value is not None} for part, names in parts.items()}
    return dataclasses.replace(OLD, **made)


class Headers(unittest.TestCase):
    def test_a_header_says_what_a_compiler_makes_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "numapilot.h"
            path.write_text(HEADER)
            signatures, structs, enums, constants = c_header.types(path)
        self.assertEqual(signatures, {
            "numapilot_message": "const char *(void)",
            "numapilot_row_at": "int (uint64_t, const numapilot_row *, numapilot_row **, numapilot_point)"})
        self.assertEqual(list(structs), ["numapilot_point", "numapilot_row"])
        point = {"kind": Member(0, 1, "uint8_t"), "x": Member(8, 8, "double"), "y": Member(16, 8, "double"), "name": Member(24, 8, "const char *")}
        self.assertEqual(structs["numapilot_point"], Struct(32, 8, point))
        row = {"at": Member(0, 64, "numapilot_point[2]"), "next": Member(64, 8, "int (*)(numapilot_row *, const char *)")}
        self.assertEqual(structs["numapilot_row"], Struct(72, 8, row))
        self.assertEqual(enums, {"numapilot_kind": {"NUMAPILOT_KIND_ONE": 1, "NUMAPILOT_KIND_TEN": 10}})
        # Enumerators without the name of an enum are numbers of their own.
        self.assertEqual(constants, {"NUMAPILOT_OK": 0, "NUMAPILOT_NEVER": -1, "NUMAPILOT_ROW_FLAT": 1, "NUMAPILOT_ROW_OLD": 4})

    def test_fields_of_another_form_are_not_passed_over(self):
        for declaration in ["double x, y", "char *a, **b", "int bits : 3", "int"]:
            with self.assertRaises(c_header.Failed, msg=declaration):
                c_header.crossing({"f": "int (s)"}, {"s": [declaration]})

    def test_a_header_that_does_not_compile_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "numapilot.h"
            path.write_text("int f(nothing_such x);\n")
            with self.assertRaisesRegex(c_header.Failed, "nothing_such"):
                c_header.types(path)


class Texts(unittest.TestCase):
    def test_an_interface_is_read_as_it_was_written(self):
        self.assertEqual(interface.parsed(interface.text_of(OLD)), OLD)

    def test_lines_that_are_not_understood_are_told(self):
        for text, reason in {"version 1\nsoname x\nsymbol y\n": "line 3", "version 1\n": "soname"}.items():
            with self.assertRaisesRegex(interface.Malformed, reason):
                interface.parsed(text)


class Changes(unittest.TestCase):
    def kinds(self, new):
        return [change.kind for change in interface.changes(OLD, new)]

    def test_nothing_changed(self):
        self.assertEqual(interface.changes(OLD, changed(constants={"NUMAPILOT_API_VERSION": 512})), [])

    def test_what_breaks_programs(self):
        moved = struct(24, ("type_size", 0, 8), ("bytes", 8, 8), ("site", 16, 4))
        for new in [
            changed(symbols={"open": None}), changed(symbols={"open": ("N_0.2", "int (int)")}), changed(symbols={"open": ("N_0.1", "int (long)")}),
            dataclasses.replace(OLD, soname="libn.so.1"), changed(structs={"row": None}), changed(enums={"kind": {"KIND_HEAP": 2}}),
            changed(enums={"kind": None}), changed(constants={"OK": 1}), changed(constants={"OK": None}),
            changed(structs={"row": dataclasses.replace(GROWING, alignment=16)}),
            changed(structs={"access": dataclasses.replace(FIXED, size=24)}), changed(structs={"row": dataclasses.replace(GROWING, size=16)}),
        ]:
            self.assertEqual(self.kinds(new), ["breaks"], new)
        self.assertEqual(self.kinds(changed(structs={"row": moved})), ["breaks", "breaks"])

    def test_a_struct_may_use_reserved_bytes_and_grow_at_its_end(self):
        grown = struct(32, ("type_size", 0, 8), ("site", 8, 4), ("cpu", 12, 2), ("reserved", 14, 2), ("bytes", 16, 8), ("node", 24, 8))
        new = [Change("new", "row: cpu, at byte 12"), Change("new", "row: node, at byte 24")]
        self.assertEqual(interface.changes(OLD, changed(structs={"row": grown})), new)
        used = struct(16, ("time_ns", 0, 8), ("cpu", 8, 4), ("reserved", 12, 4))
        self.assertEqual(self.kinds(changed(structs={"access": used})), ["new"])
        # It lies in bytes that programs fill, and in none that are reserved.
        inside = struct(24, ("type_size", 0, 8), ("site", 8, 4), ("cpu", 10, 4), ("bytes", 16, 8))
        self.assertEqual(self.kinds(changed(structs={"row": inside})), ["breaks"])

    def test_new_names_get_a_version_of_their_own(self):
        self.assertEqual(self.kinds(changed(symbols={"read": ("N_0.2", "int (int)")}, enums={"kind": {"KIND_HEAP": 1, "KIND_POOL": 2}})), ["new", "new"])
        self.assertEqual(self.kinds(changed(symbols={"read": ("N_0.1", "int (int)")})), ["fault", "new"])


class Verdicts(unittest.TestCase):
    def said(self, new, old=OLD, is_released=True):
        fits, lines = interface.verdict(old, new, is_released)
        return fits, "\n".join(lines)

    def at(self, version, soname="libn.so.0", **parts):
        return dataclasses.replace(changed(**parts), version=version, soname=soname)

    def test_a_change_that_breaks_needs_another_soname_and_before_1_0_a_minor_version(self):
        for version, soname, fits in [("0.1.1", 1, False), ("0.2.0", 0, False), ("0.2.0", 1, True), ("0.2.0-rc.1", 1, True)]:
            found, said = self.said(self.at(version, f"libn.so.{soname}", symbols={"open": None}))
            self.assertEqual(found, fits, said)
            self.assertIn("a new minor version (before 1.0; afterwards a major one), 0.2.0 or later, and another SONAME than libn.so.0", said)
            self.assertEqual("NOT ENOUGH" in said, not fits)

    def test_after_1_0_it_needs_a_major_version(self):
        old = dataclasses.replace(OLD, version="1.4.2")
        for version, fits in [("1.5.0", False), ("2.0.0", True)]:
            found, said = self.said(self.at(version, "libn.so.1", constants={"OK": 1}), old)
            self.assertEqual(found, fits, said)
            self.assertIn("a new major version, 2.0.0 or later", said)

    def test_what_is_new_needs_a_minor_version(self):
        for version, fits in [("0.1.1", False), ("0.2.0", True), ("1.0.0", True)]:
            found, said = self.said(self.at(version, constants={"MORE": 9}))
            self.assertEqual(found, fits, said)
            self.assertIn("0.2.0 or later, and no major one", said)

    def test_no_version_makes_a_new_name_of_an_old_version_right(self):
        found, said = self.said(self.at("2.0.0", symbols={"read": ("N_0.1", "int (int)")}))
        self.assertFalse(found)
        self.assertIn("NOT ENOUGH: read is in N_0.1", said)

    def test_before_the_release_the_baseline_only_has_to_be_renewed(self):
        found, said = self.said(changed(symbols={"open": None}), is_released=False)
        self.assertFalse(found)
        self.assertIn("make abi ABI=--write", said)
        self.assertEqual(self.said(OLD, is_released=False), (True, "the interface is that of 0.1.0"))


class Tool(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.baseline = self.folder / "baseline.txt"

    def test_the_tree_keeps_what_the_baselines_promise(self):
        for name, library in abi.LIBRARIES.items():
            now, wrong = abi.interface_of(TREE, library)
            self.assertEqual(wrong, [], name)
            text = (TREE / library.baseline).read_text(encoding="utf-8")
            old = interface.parsed(text)
            self.assertEqual(interface.text_of(old), text)
            self.assertIn(f"in {name}. ", text.splitlines()[0])
            self.assertEqual([change for change in interface.changes(old, now) if change.kind != "new"], [], "make abi says what this needs")
            self.assertGreater(len(now.symbols), 10, name)

    def test_every_library_that_is_packed_has_a_baseline(self):
        tables = tomllib.loads((TREE / "packaging/packages.toml").read_text(encoding="utf-8"))
        sonames = {interface.parsed((TREE / library.baseline).read_text(encoding="utf-8")).soname for library in abi.LIBRARIES.values()}
        self.assertEqual(sonames, {table["soname"] for table in tables.values() if "soname" in table})

    def test_built_files_are_told_apart_by_their_names(self):
        files = {name: pathlib.Path(f"build/{name}.so.0") for name in abi.LIBRARIES}
        self.assertEqual(abi.by_name(files.values()), files)
        with self.assertRaisesRegex(c_header.Failed, "libc.so.6: the file of libnumapilot or libnumapilot_replica"):
            abi.by_name([pathlib.Path("/lib/libc.so.6")])
        for command in [line for line in (TREE / "Makefile").read_text(encoding="utf-8").splitlines() if "tools/abi --library" in line]:
            self.assertEqual(command.count("--library"), len(abi.LIBRARIES), command)

    def test_exports_of_a_library_are_compared_with_the_map(self):
        (self.folder / "a.map").write_text("/* a: b; */ N_0.1 { global: one; two; local: *; };\nN_0.2 { global: three; } N_0.1;\n")
        listed = abi.exported_by_map((self.folder / "a.map").read_text())
        self.assertEqual(listed, {"one": "N_0.1", "two": "N_0.1", "three": "N_0.2"})
        library = self.folder / "liba.so"
        code = "int one(void){return 1;} int three(void){return 3;} int hidden(void){return 0;} int two;"
        script = f"-Wl,--version-script,{self.folder / 'a.map'}"
        subprocess.run(["gcc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", script, "-o", library], input=code, text=True, check=True)
        self.assertEqual(abi.exported_by_library(library), listed)
        self.assertEqual(abi.differences({"one": "N_0.1", "four": ""}, "a", listed, "b"), [
            "four is in a, not in b", "three is in b, not in a", "two is in b, not in a"])
        self.assertEqual(abi.differences({"one": ""}, "a", {"one": "N_0.1"}, "b"), ["one is of version none in a, of N_0.1 in b"])

    def test_the_baseline_is_renewed_with_a_release_only(self):
        log, newer = self.folder / "CHANGELOG.md", dataclasses.replace(changed(constants={"MORE": 9}), version="0.2.0")
        log.write_text("## Unreleased\n")
        abi.write(self.folder, self.baseline, dataclasses.replace(OLD, constants={}))
        abi.write(self.folder, self.baseline, OLD)
        log.write_text("## Unreleased\n\n## 0.1.0\n")
        with self.assertRaisesRegex(c_header.Failed, "renewed once CHANGELOG.md has the heading `## 0.2.0`"):
            abi.write(self.folder, self.baseline, newer)
        log.write_text("## 0.2.0\n\n## 0.1.0\n")
        with self.assertRaisesRegex(c_header.Failed, "NOT ENOUGH: Cargo.toml has version 0.1.1"):
            abi.write(self.folder, self.baseline, dataclasses.replace(newer, version="0.1.1"))
        self.assertEqual(interface.parsed(self.baseline.read_text()), OLD)
        abi.write(self.folder, self.baseline, newer)
        self.assertEqual(interface.parsed(self.baseline.read_text()), newer)

    def test_what_cannot_be_compared_is_told(self):
        self.baseline.write_text("nothing\n")
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["abi", "libnumapilot", "--baseline", str(self.baseline)]), contextlib.redirect_stderr(said):
            self.assertEqual(abi.main(), 2)
        self.assertIn("line 1 is not understood", said.getvalue())
        with mock.patch.object(sys, "argv", ["abi", "--baseline", str(self.baseline)]), contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            abi.main()
        self.assertIn("--baseline FILE is of one library", said.getvalue())


if __name__ == "__main__":
    unittest.main()
