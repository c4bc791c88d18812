"""Unit tests of the tools of the documents (docs-links, docs-preprocess, docs-reference, questions, markdown.py). Run by crates/cli/tests/docs.rs."""

import os
import shutil
import stat
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
sys.dont_write_bytecode = True

import loading  # noqa: E402
import markdown  # noqa: E402


links, preprocess, reference, questions = (loading.tool(name) for name in ["docs-links", "docs-preprocess", "docs-reference", "questions"])


def tree(folder, **documents):
    """Writes documents below a folder; `__` in a name stands for a slash, and each gets the ending .md."""
    for name, text in documents.items():
        path = os.path.join(folder, name.replace("__", "/") + ".md")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class Markdown(unittest.TestCase):
    def test_links_are_found_where_they_stand(self):
        text = 'a [b](c.md#d "t") ![e](f.png)\n[![g](h.svg)](i.md)\n[k]: l.md\n<a href="m.md">n</a>'
        found = [(link.target, link.line) for link in markdown.links(text)]
        self.assertEqual(found, [("c.md#d", 1), ("f.png", 1), ("h.svg", 2), ("i.md", 2), ("l.md", 3), ("m.md", 4)])
        for link in markdown.links(text):
            self.assertEqual(text.splitlines()[link.line - 1][link.start : link.end], link.target)

    def test_code_and_comments_have_no_links(self):
        self.assertEqual(list(markdown.links("`[a](b.md)` ``[`c](d.md)``\n```sh\n[e](f.md)\n```\n<!-- [g](h.md) -->")), [])
        self.assertEqual([link.target for link in markdown.links("~~~\n```\n[a](b.md)\n~~~\n[c](d.md)")], ["d.md"])

    def test_anchors_are_those_that_readers_see(self):
        text = "# Whole processes: `--pack`\n## Who's `a_b`, [c](d.md)?\n## Same\n## Same\n```\n# no heading\n```\n"
        self.assertEqual(markdown.anchors(text), {"whole-processes---pack", "whos-a_b-c", "same", "same-1"})

    def test_targets_are_replaced_and_nothing_else(self):
        text = "a.md [a](a.md), `[a](a.md)` [b](b.md)\n"
        self.assertEqual(markdown.replaced(text, lambda target: "x-" + target), "a.md [a](x-a.md), `[a](a.md)` [b](x-b.md)\n")


class Links(unittest.TestCase):
    def test_dead_links_are_told_with_their_places(self):
        with tempfile.TemporaryDirectory() as folder:
            good = "# A\n[b](sub/b.md#c-d) [self](#a) [far](https://example.org/x) [tree](../README.md)\n"
            tree(folder, README="# R\n", docs__a=good, docs__sub__b="# C D\n[a](../a.md)\n")
            self.assertEqual(list(links.dead_links(folder)), [])
            tree(folder, docs__a="# A\n\n[b](gone.md) [b](sub/b.md#gone)\n[c](/README.md) [d](../../x.md)\n")
            self.assertEqual(
                list(links.dead_links(folder)),
                [
                    "docs/a.md:3: gone.md: no such file",
                    "docs/a.md:3: sub/b.md#gone: no such heading in docs/sub/b.md",
                    "docs/a.md:4: /README.md: an absolute path",
                    "docs/a.md:4: ../../x.md: outside of the tree",
                ],
            )

    def test_a_page_that_the_book_lacks_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            tree(folder, docs__SUMMARY="# Summary\n- [A](a.md)\n", docs__a="# A\n", docs__sub__b="# B\n")
            self.assertEqual(list(links.missing_pages(folder)), ["docs/SUMMARY.md:1: docs/sub/b.md is not in the book"])
            tree(folder, docs__SUMMARY="# Summary\n- [A](a.md)\n- [B](sub/b.md)\n- [Again](a.md)\n")
            self.assertEqual(list(links.missing_pages(folder)), ["docs/SUMMARY.md:4: docs/a.md is in the book already, by line 2"])

    def test_links_are_followed_from_where_the_book_has_its_pages(self):
        with tempfile.TemporaryDirectory() as folder:
            summary = "# Summary\n- [A](a.md)\n- [Shown](sub/shown.md)\n"
            tree(folder, docs__SUMMARY=summary, README="# R\n[a](docs/a.md)\n", LICENSE="#\n")
            tree(folder, docs__a="[r](../README.md#r) [c](../Cargo.toml) [s](sub/shown.md#r)\n")
            tree(folder, docs__sub__shown="<!-- shows ../../README.md -->\n", Cargo__toml="")
            os.rename(os.path.join(folder, "Cargo", "toml.md"), os.path.join(folder, "Cargo.toml"))
            self.assertEqual(list(links.dead_when_processed(folder)), [])
            tree(folder, docs__a="[l](../LICENSE.md)\n\n[g](sub/shown.md#gone) [f](../gone)\n", README="[g](docs/gone.png)\n")
            self.assertEqual(
                list(links.dead_when_processed(folder)),
                [
                    "docs/a.md:1: ../../LICENSE.md: the book has no such page or file",
                    "docs/a.md:3: sub/shown.md#gone: the book has no such heading",
                    "docs/a.md:3: ../../gone: the book has no such page or file",
                    "docs/sub/shown.md:1: ../gone.png: the book has no such page or file",
                ],
            )

    def test_crates_are_described_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["a", "b", "c"]:
                tree(folder, **{f"crates__{name}__Cargo": ""})
                os.rename(os.path.join(folder, "crates", name, "Cargo.md"), os.path.join(folder, "crates", name, "Cargo.toml"))
            table = "| `crates/a` | A |\n| `crates/b` | B |\n\nOne crate is no part of the product: `crates/c` (tests, with `crates/c/x`).\n"
            tree(folder, ARCHITECTURE=table)
            self.assertEqual(list(links.differing_crates(folder)), [])
            tree(folder, ARCHITECTURE=table.replace("crates/b", "crates/a").replace("crates/c`", "crates/d`"))
            told = ["b is not described", "c is not described", "d does not exist", "a is described twice"]
            self.assertEqual(list(links.differing_crates(folder)), [f"ARCHITECTURE.md:1: crates/{what}" for what in told])

    def test_names_in_the_guide_to_changes_are_in_the_crates_of_their_section(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ["a", "b"]:
                os.makedirs(os.path.join(folder, "crates", name, "src"))
                with open(os.path.join(folder, "crates", name, "src", "lib.rs"), "w", encoding="utf-8") as file:
                    file.write(f"fn of_{name}() {{ {name}::NAMES }}\n")
            guide = "# Changes\n`anything`\n## One\n`crates/a/src/lib.rs`: `of_a()`, `a::NAMES`\n\n`of_b`\n## Two\n`crates/b`, `crates/a`: `of_b`, `of`\n"
            tree(folder, docs__internals__changes=guide)
            told = ["6: of_b is not in crates/a", "8: of is not in crates/a, crates/b"]
            self.assertEqual(list(links.unknown_names(folder)), [f"docs/internals/changes.md:{what}" for what in told])

    def test_a_message_that_no_source_prints_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "crates", "a", "src", "a.rs")
            os.makedirs(os.path.dirname(source))
            with open(source, "w", encoding="utf-8") as file:
                file.write('bail!("no room on {node}: \\\n    free some");\n')
            tree(folder, docs__troubleshooting="### `no room on ...: free some`\n\n### `no such message`\n")
            self.assertEqual(list(links.stale_messages(folder)), ["docs/troubleshooting.md:3: no source has the message 'no such message'"])

    def test_metrics_are_explained_as_they_are_served(self):
        with tempfile.TemporaryDirectory() as folder:
            for path in links.SERVED_BY:
                os.makedirs(os.path.dirname(os.path.join(folder, path)), exist_ok=True)
                with open(os.path.join(folder, path), "w", encoding="utf-8") as file:
                    file.write('gauge("numapilot_a", "A"); gauge("numapilot_b", "B");\n')
            tree(folder, docs__operating__metrics="`numapilot_a`, `numapilot_c`\n")
            told = ["numapilot_b is served and not explained", "numapilot_c is explained and not served"]
            self.assertEqual(list(links.differing_metrics(folder)), [f"docs/operating/metrics.md:1: {what}" for what in told])

    def test_commands_that_documents_type_exist(self):
        with tempfile.TemporaryDirectory() as folder:
            topo = "## numapilot topo\n\n```text\nUsage: numapilot topo [OPTIONS]\n\n  -m, --machine <NAME>\n      --json\n```\n"
            plan = "## numapilot plan\n\n```text\nUsage: numapilot plan [OPTIONS] <FILE> [-- <PROGRAM>...]\n\n      --fold  Fold\n```\n"
            good = "`numapilot topo -m a --json`, numapilot topo NAME\n```sh\nnumapilot plan a.toml --fold -- ./app --fast   # --slow\nnumapilot cc -O2\n```\n"
            tree(folder, docs__reference__commands=topo + "\n" + plan, docs__a=good)
            self.assertEqual(list(links.unknown_options(folder)), [])
            tree(folder, docs__a="`numapilot topo NAME --json`\n\n`numapilot plan x --folds`\n```\nnumapilot draw\n```\n")
            told = ["1: numapilot topo NAME --json", "3: numapilot plan x --folds", "5: numapilot draw"]
            why = "no such command, option or argument (docs/reference/commands.md)"
            self.assertEqual(list(links.unknown_options(folder)), [f"docs/a.md:{what}: {why}" for what in told])

    def test_the_built_book_is_checked_too(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {
                "index.html": '<h1 id="a">A</h1>\n<a href="b.html#b">b</a> <img src="gone.png"> <a href="#a">a</a>',
                "b.html": '<a href="index.html#gone">a</a>',
            }.items():
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            told = [problem.removeprefix(folder + "/") for problem in links.dead_in_book(folder)]
            missing = ["b.html:1: index.html#gone: no such heading", "index.html:2: b.html#b: no such heading", "index.html:2: gone.png: no such file"]
            self.assertEqual(told, missing)


class Preprocess(unittest.TestCase):
    def chapter(self, path, content):
        return {"Chapter": {"name": path, "content": content, "path": path, "sub_items": []}}

    def test_links_lead_from_the_book(self):
        with tempfile.TemporaryDirectory() as folder:
            tree(folder, ARCHITECTURE="# Architecture\n[docs](docs/a.md#x) [models](models) [house](#rules)\n")
            shown = self.chapter("internals/architecture.md", "<!-- shows ../../ARCHITECTURE.md -->\n# A\n")
            page = self.chapter("a.md", "[b](sub/b.md) [architecture](../ARCHITECTURE.md#rules) [tool](../tools/setup) [far](https://x.org)\n")
            book = {"items": ["Separator", shown, page]}
            preprocess.processed({"root": folder, "config": {"build": {"build-dir": "build/book"}}}, book)
            self.assertEqual(shown["Chapter"]["content"], "# Architecture\n[docs](../a.md#x) [models](../../../models) [house](#rules)\n")
            told = "[b](sub/b.md) [architecture](internals/architecture.md#rules) [tool](../../tools/setup) [far](https://x.org)\n"
            self.assertEqual(page["Chapter"]["content"], told)


class Reference(unittest.TestCase):
    def test_every_command_has_a_section(self):
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "program")
            with open(program, "w", encoding="utf-8") as file:
                file.write(
                    '#!/bin/sh\ncase "$*" in\n"help") printf "Top\\n\\nCommands:\\n  one   First\\n        more\\n  help  No\\n\\nOptions:\\n  -h  x\\n" ;;\n'
                    '"help one") printf "One  \\n\\nCommands:\\n  two  Second\\n" ;;\n"help one two") printf "Two\\n" ;;\n*) exit 2 ;;\nesac\n'
                )
            os.chmod(program, os.stat(program).st_mode | stat.S_IXUSR)
            made = reference.page(program)
        headings = [line for line in made.splitlines() if line.startswith("#")]
        self.assertEqual(headings, ["# Every command", "## numapilot one", "### numapilot one two"])
        self.assertIn("```text\nOne\n\nCommands:\n  two  Second\n```\n", made)


class Questions(unittest.TestCase):
    NEEDED = ["scripts", questions.MODULES, "crates/query/src/ready.rs", "docs/query.md"]

    def problems_after(self, path, old, new):
        """What is told of a copy of the scripts in which one text of a file is another one."""
        with tempfile.TemporaryDirectory() as folder:
            for name in self.NEEDED:
                there, here = os.path.join(questions.ROOT, name), os.path.join(folder, name)
                os.makedirs(os.path.dirname(here), exist_ok=True)
                shutil.copytree(there, here) if os.path.isdir(there) else shutil.copyfile(there, here)
            text = questions.read(folder, path)
            self.assertIn(old, text)
            with open(os.path.join(folder, path), "w", encoding="utf-8", newline="") as file:
                file.write(text.replace(old, new, 1))
            return questions.problems(folder)

    def test_the_scripts_as_they_are_have_no_problem(self):
        self.assertEqual(self.problems_after("scripts/remote.c", "", ""), [])

    def test_a_script_that_drifts_is_found_in_every_language(self):
        for path, old, new in [
            ("scripts/remote.c", "known_samples,", ""),
            (f"{questions.MODULES}/remote.py", '    "known_samples",\n', ""),
            ("scripts/remote.sql", "-- How many", "-- Which"),
            ("scripts/golden/psearchy-remote.csv", "remote_ppm", "remote"),
        ]:
            told = self.problems_after(path, old, new)
            self.assertTrue(len(told) == 1 and told[0].startswith(path), told)

    def test_a_list_without_a_script_is_found(self):
        for path, old in [
            ("crates/query/src/ready.rs", '    "handover",\n'),
            (f"{questions.MODULES}/table.py", '"handover", '),
            ("docs/query.md", "`handover`, "),
        ]:
            told = self.problems_after(path, old, "")
            self.assertTrue(len(told) == 1 and path in told[0] and "handover" in told[0], told)

    def test_the_page_follows_the_table(self):
        told = self.problems_after("scripts/questions.toml", "all memory accesses", "every memory access")
        self.assertEqual(told, ["scripts/README.md differs from questions.toml: run tools/questions, and commit the file"])


if __name__ == "__main__":
    unittest.main()
