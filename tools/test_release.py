"""Unit tests of tools/release. Run by tools/test_workflows.py, because the workflow `release` runs it.

Needs git and dpkg-deb.
"""

import contextlib
import hashlib
import io
import pathlib
import shutil
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

import loading  # noqa: E402

VERSION = tomllib.loads((TREE / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"]["version"]
LOG = f"# Changelog\n\nWords.\n\n## {VERSION}\n\n- One thing: [how](docs/a.md).\n- Another one.\n\n## 0.0.1\n\n- Old.\n"


release = loading.tool("release")
COPIED = ["Cargo.toml", "crates/query/Cargo.toml", "packaging/kubernetes/daemonset.yaml", "packaging/packages.toml", *release.STATED, *release.LOCKS]


def git(folder, *words):
    subprocess.run(["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True)


class Tree(unittest.TestCase):
    """What is compared in a tree: the real files that state a version, with a changelog of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name)
        for name in COPIED:
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(TREE / name, self.tree / name)
        (self.tree / "CHANGELOG.md").write_text(LOG)
        (self.tree / ".gitignore").write_text("/dist\n/build\n")

    def commit(self):
        git(self.tree, "init", "-q")
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-q", "-m", "all")

    def edit(self, name, old, new):
        text = (self.tree / name).read_text(encoding="utf-8")
        self.assertIn(old, text, name)
        (self.tree / name).write_text(text.replace(old, new), encoding="utf-8")

    def test_whatever_states_another_version_is_found(self):
        self.assertEqual(release.wrong_versions(self.tree, VERSION), [])
        for name in [*release.STATED, "packaging/kubernetes/daemonset.yaml", "crates/query/Cargo.toml"]:
            kept = (self.tree / name).read_text(encoding="utf-8")
            self.edit(name, VERSION, "9.8.7")
            (wrong,) = release.wrong_versions(self.tree, VERSION)
            self.assertIn(name, wrong)
            (self.tree / name).write_text(kept, encoding="utf-8")
        self.edit("docs/guides/containers.md", f"`numapilot:{VERSION}`", "some image")
        self.assertEqual(release.wrong_versions(self.tree, VERSION), ["docs/guides/containers.md names no version: change STATED in tools/release"])

    def test_a_candidate_is_its_release_to_the_c_api(self):
        for path, found in {"crates/capi/src/ffi.rs": 0, "docs/guides/containers.md": 1}.items():
            with mock.patch.dict(release.STATED, {path: release.STATED[path]}, clear=True), mock.patch.object(release.packages, "versions_of"):
                self.assertEqual(len(release.wrong_versions(self.tree, f"{VERSION}-rc.1")), found, path)

    def test_the_interface_is_that_of_the_release(self):
        found = "the interface is that of 0.0.9"
        (self.tree / "tools").mkdir()
        for package, name in [("libnumapilot0", "libnumapilot"), ("libnumapilot-replica0", "libnumapilot_replica")]:
            library = release.abi.LIBRARIES[name]
            (self.tree / library.baseline).write_text("version 0.0.9\nsoname a\n")
            with mock.patch.object(release.abi, "check", return_value=(True, [found])):
                self.assertEqual(release.wrong_interface(self.tree, None, None, library), [])
                self.assertEqual(release.wrong_interface(self.tree, VERSION, None, library), [f"{library.baseline} is that of 0.0.9: make abi ABI=--write"])
                self.assertEqual(release.wrong_interface(self.tree, "0.0.9", None, library), [])
            with mock.patch.object(release.abi, "check", return_value=(False, [found])):
                self.assertEqual(release.wrong_interface(self.tree, VERSION, None, library), [found])
            self.assertIn(f"0 packages {package}, not one", release.wrong_interface(self.tree, VERSION, self.tree, library)[0])

    def test_the_library_is_that_of_the_package(self):
        inside, dist, folder = self.tree / "inside", self.tree / "dist", self.tree / "unpacked"
        for path in [inside / "DEBIAN", inside / "usr/lib/a", dist]:
            path.mkdir(parents=True)
        (inside / "DEBIAN/control").write_text("Package: libnumapilot0\nVersion: 1\nArchitecture: all\nMaintainer: a <a@b>\nDescription: a\n")
        (inside / "usr/lib/a/libnumapilot.so.0").write_text("its bytes")
        subprocess.run(["dpkg-deb", "--root-owner-group", "--build", inside, dist / "libnumapilot0_1_all.deb"], check=True, capture_output=True)
        self.assertEqual(release.library_of(self.tree, dist, folder, "libnumapilot").read_text(), "its bytes")
        (dist / "libnumapilot0_1_all.deb").write_text("damaged")
        shutil.rmtree(folder)
        with self.assertRaisesRegex(release.Failed, "has no libnumapilot.so.0: dpkg-deb"):
            release.library_of(self.tree, dist, folder, "libnumapilot")

    def test_lock_files_that_are_behind_are_found(self):
        self.assertEqual(release.wrong_locks(self.tree, VERSION), [])
        for lock in release.LOCKS:
            self.edit(lock, f'name = "numapilot-host"\nversion = "{VERSION}"', 'name = "numapilot-host"\nversion = "0.0.9"')
        found = release.wrong_locks(self.tree, VERSION)
        self.assertEqual(found, [f"{lock} has numapilot-host 0.0.9: run cargo metadata in its folder" for lock in release.LOCKS])

    def test_the_tag_is_that_of_the_version_and_of_the_commit(self):
        self.commit()
        tag = f"v{VERSION}"
        self.assertEqual(release.wrong_tag(self.tree, VERSION, ""), [])
        self.assertEqual(release.wrong_tag(self.tree, VERSION, tag), [f"there is no tag {tag}"])
        self.assertEqual(release.wrong_tag(self.tree, VERSION, "v9.8.7"), [f"the tag is v9.8.7, and Cargo.toml has version {VERSION}"])
        git(self.tree, "tag", tag)
        self.assertEqual(release.wrong_tag(self.tree, VERSION, tag) + release.wrong_tag(self.tree, VERSION, ""), [])
        git(self.tree, "commit", "-q", "--allow-empty", "-m", "more")
        for said in [tag, ""]:
            self.assertIn("of another commit", release.wrong_tag(self.tree, VERSION, said)[0])

    def test_files_that_are_not_committed_are_found(self):
        self.assertIn("no git repository", release.wrong_tree(self.tree)[0])
        self.commit()
        (self.tree / "dist").mkdir()
        (self.tree / "dist/ignored").write_text("")
        self.assertEqual(release.wrong_tree(self.tree), [])
        (self.tree / "more.toml").write_text("")
        self.edit("CHANGELOG.md", "One", "Two")
        self.assertEqual(release.wrong_tree(self.tree), ["not as committed: M CHANGELOG.md", "not as committed: ?? more.toml"])

    def packed(self):
        """A folder of packages of the tree's commit, and the names in it."""
        dist = self.tree / "dist"
        dist.mkdir()
        shown = release.packages.dated_version(self.tree, VERSION)[0].replace("~", ".")
        tables = tomllib.loads((TREE / "packaging/packages.toml").read_text(encoding="utf-8"))
        names = [f"{name}_{shown}_amd64.deb" for name in tables]
        names += [f"{table.get('rpm', name)}-{shown}-1.x86_64.rpm" for name, table in tables.items()]
        names += [f"numapilot-{shown}-x86_64-linux{end}" for end in (".tar.xz", "-debug.tar.xz", "-image.tar", ".cdx.json")]
        wheel = release.packages.wheels.version_of(release.packages.dated_version(self.tree, VERSION)[0])
        names.append(f"numapilot-{wheel}-cp39-abi3-manylinux_2_34_x86_64.whl")
        for name in names:
            (dist / name).write_text(name)
        self.list_sums(dist, names)
        return dist, names

    def list_sums(self, dist, names):
        (dist / release.SUMS).write_text("".join(f"{hashlib.sha256((dist / name).read_bytes()).hexdigest()}  {name}\n" for name in names))

    def test_the_folder_has_all_packages_of_this_commit_and_nothing_else(self):
        self.commit()
        dist, names = self.packed()
        # Of another processor, in a folder of its own.
        (dist / "aarch64-unknown-linux-gnu").mkdir()
        self.assertEqual(release.wrong_packages(self.tree, dist, VERSION), [])
        (dist / names[0]).write_text("damaged")
        (dist / "more").write_text("")
        (dist / names[1]).unlink()
        found = "\n".join(release.wrong_packages(self.tree, dist, VERSION))
        for part in [f"{names[0]} has other contents", f"more is not in {release.SUMS}", f"{names[1]} is in {release.SUMS} and not there",
                     f"there is no {names[1].replace('amd64', '*')} (make query packages)", "more is not of this commit"]:
            self.assertIn(part, found)

    def test_packages_of_an_earlier_commit_are_refused(self):
        self.commit()
        dist, names = self.packed()
        git(self.tree, "tag", f"v{VERSION}")
        found = release.wrong_packages(self.tree, dist, VERSION)
        self.assertEqual(found[: len(names)], [f"{name} is not of this commit, whose packages have version {VERSION}" for name in sorted(names)])
        self.assertEqual([line.split()[:3] for line in found[len(names) :]], [["there", "is", "no"]] * len(names))
        (dist / release.SUMS).unlink()
        self.assertIn("make query packages", release.wrong_packages(self.tree, dist, VERSION)[0])

    def test_a_rehearsal_shows_what_would_be_uploaded_and_fails_where_something_is_wrong(self):
        self.commit()
        git(self.tree, "tag", f"v{VERSION}")
        dist, names = self.packed()
        code, said = self.run_main("--tag", f"v{VERSION}", dist)
        self.assertEqual(code, 0, said)
        for name in names:
            self.assertRegex(said, rf" {len(name)}  {hashlib.sha256(name.encode()).hexdigest()}  {name}\n")
        self.assertIn("all 9 checks pass", said)
        notes = (self.tree / "build/release/NOTES.md").read_text(encoding="utf-8")
        self.assertRegex(notes, rf"\A- One thing: \[how\]\(https://\S+/blob/v{VERSION}/docs/a.md\).\n- Another one.\n\Z")
        code, said = self.run_main("--tag", "v9.8.7", dist)
        self.assertEqual(code, 1)
        self.assertIn("NOT ready: 1 of 9 checks fail", said)

    def run_main(self, *words):
        """Exit status and output, without what other tools say of the whole tree."""
        said = io.StringIO()
        ok = {"wrong_documents": [], "wrong_interface": [], "crates": ["none"]}
        with contextlib.ExitStack() as stack:
            for name, value in ok.items():
                stack.enter_context(mock.patch.object(release, name, return_value=value))
            stack.enter_context(mock.patch.object(sys, "argv", ["release", "--tree", str(self.tree), *map(str, words)]))
            stack.enter_context(contextlib.redirect_stdout(said))
            code = release.main()
        return code, said.getvalue()


class Changelog(unittest.TestCase):
    def test_the_section_of_the_version_is_taken(self):
        self.assertEqual(release.section_of(LOG, VERSION, False), ("- One thing: [how](docs/a.md).\n- Another one.", []))
        self.assertEqual(release.section_of(LOG, VERSION, True)[1], [])
        self.assertEqual(release.section_of(LOG.replace("Words.\n", "## Unreleased\n"), VERSION, False)[1], [])

    def test_a_rehearsal_takes_what_is_not_released(self):
        text = LOG.replace(f"## {VERSION}", "## Unreleased")
        self.assertEqual(release.section_of(text, VERSION, True)[1], [])
        self.assertIn(f"no section `## {VERSION}`", release.section_of(text, VERSION, False)[1][0])

    def test_what_is_wrong_with_it_is_told(self):
        for text, wrong in {
            LOG.replace("- ", ""): f"the section {VERSION} of CHANGELOG.md has no entries",
            "## Unreleased\n\n- More.\n\n" + LOG: f"CHANGELOG.md has Unreleased above {VERSION}",
            "## 9.8.7\n\n" + LOG: f"CHANGELOG.md has 9.8.7 above {VERSION}",
        }.items():
            self.assertEqual(release.section_of(text, VERSION, False)[1], [wrong])

    def test_links_lead_into_the_tagged_tree(self):
        text = "- [a](docs/b.md#c) [d](https://e.org/f) [g](#h)"
        self.assertEqual(release.notes_of(text, "https://x.org/y", "1.2.3"), "- [a](https://x.org/y/blob/v1.2.3/docs/b.md#c) [d](https://e.org/f) [g](#h)\n")

    def test_notes_that_github_would_refuse_end_with_a_whole_entry(self):
        entry = "- " + "word " * 60 + "end\n"
        fits = (entry * (release.NOTES_MAX // len(entry))).rstrip("\n")
        self.assertEqual(release.notes_of(fits, "https://x.org/y", "1.2.3"), fits + "\n")
        notes = release.notes_of(entry * 1000, "https://x.org/y", "1.2.3")
        self.assertLessEqual(len(notes), release.NOTES_MAX)
        self.assertGreater(len(notes), release.NOTES_MAX - 2 * len(entry))
        self.assertTrue(notes.endswith("word end\n\nThe rest is in [CHANGELOG.md](https://x.org/y/blob/v1.2.3/CHANGELOG.md).\n"), notes[-200:])


class Crates(unittest.TestCase):
    def test_crates_with_dependencies_without_versions_cannot_be_packed(self):
        bare, other = {"path": "/a", "req": "*"}, {"req": "^1"}
        listed = [("bare", None, [{**bare, "kind": None}]), ("built", None, [{**bare, "kind": "build"}]), ("tested", None, [{**bare, "kind": "dev"}]),
                  ("free", None, [{**other, "kind": None}]), ("versioned", None, [{"path": "/a", "req": "^1", "kind": None}]), ("own", [], [])]
        metadata = {"packages": [{"name": name, "publish": publish, "dependencies": needs} for name, publish, needs in listed]}
        self.assertEqual(release.crates_of(metadata), (["free", "tested", "versioned"], ["bare", "built"]))


if __name__ == "__main__":
    unittest.main()
