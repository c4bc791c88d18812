"""Notices of what a program of Rust contains: names, versions and licences of the crates that are linked into it, with their texts. For tools/packages.

What is linked comes from `cargo metadata`, and from `cargo tree`, which knows the features of one program alone; tests, build scripts and procedural macros
are in no program. Texts come from each crate's sources, which Cargo has unpacked to build it; a crate without one has the text of its licence from
packaging/licenses, under the names of its authors. Those of Rust's standard library come with the compiler.

usage: python3 tools/third_party.py PROGRAM

PROGRAM is the name of its package, of the workspace in the folder above; it is built for this machine.
"""

import html
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Licences (SPDX) under which a program of ours may be handed on; each asks at most that its text goes along.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unicode-3.0",
    "Unicode-DFS-2016", "Unlicense", "Zlib", "bzip2-1.0.6",
}
TEXTS = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-_.].*)?", re.IGNORECASE)
SOURCES = re.compile(r".*\.(c|h|rs|py|html)", re.IGNORECASE)
# Texts of crates that have none of their own.
STANDARD = {"Apache-2.0": "LICENSE-APACHE", "BSD-3-Clause": "packaging/licenses/BSD-3-Clause.txt"}
# What our own code is licensed under, and Rust's.
OURS = "MIT OR Apache-2.0"
HEADING = """Third-party software in this package
====================================

Programs of Rust contain the libraries that they use. Those below are linked into this package's files, beside Rust's standard library (its notices are at the
end). "OR" is a choice: of a library that brings several texts, and MIT's among them, that one follows.
"""


class NotAllowed(Exception):
    """A crate's licence is none that this knows, or its text is missing."""


def spdx(expression):
    """A crate's licence as an SPDX expression. `/` is `OR`, as older crates write it."""
    return re.sub(r"\s*/\s*", " OR ", expression or "")


def is_allowed(expression):
    """Whether one of an expression's choices has allowed licences only."""
    words = re.findall(r"[()]|[^()\s]+", spdx(expression))
    allowed, at = _any(words, 0)
    return bool(words) and at == len(words) and allowed


def _any(words, at):
    allowed, at = _all(words, at)
    while at < len(words) and words[at] == "OR":
        other, at = _all(words, at + 1)
        allowed = allowed or other
    return allowed, at


def _all(words, at):
    allowed, at = _one(words, at)
    while at < len(words) and words[at] == "AND":
        other, at = _one(words, at + 1)
        allowed = allowed and other
    return allowed, at


def _one(words, at):
    if at < len(words) and words[at] == "(":
        allowed, at = _any(words, at + 1)
        return allowed and at < len(words), at + 1
    name = " ".join(words[at : at + 3]) if words[at + 1 : at + 2] == ["WITH"] else "".join(words[at : at + 1])
    return name in ALLOWED, at + (3 if " WITH " in name else 1)


def together(expressions):
    """One expression for ours and all of these, each once: what a package's licence is as a whole."""
    def parts(expression):
        if "(" in expression:
            return [f"({expression})"]
        # AND binds closer; the order of choices says nothing.
        if " OR " not in expression:
            return expression.split(" AND ")
        return [f"({' OR '.join(sorted(expression.split(' OR ')))})"]

    others = sorted({part for expression in expressions for part in parts(spdx(expression))} - set(parts(OURS)))
    return " AND ".join([f"({OURS})", *others]) if others else OURS


def of_cargo(program, target, manifest, said):
    """What cargo says of a program (the name of its package) that is built for `target` alone, without the rest of its workspace: metadata, and the (name,
    version) of all that is linked. `said`: what a command that must succeed prints, as bytes."""
    cargo, where = os.environ.get("CARGO", "cargo"), ["--locked", "--manifest-path", str(manifest)]
    metadata = json.loads(said([cargo, "metadata", "--format-version", "1", "--filter-platform", target, *where]))
    # Of the whole workspace, crates have more features, and so need more crates, than in this program.
    command = [cargo, "tree", "--package", program, "--edges", "normal,no-proc-macro", "--target", target, "--prefix", "none", "--format", "{p}", *where]
    lines = said(command).decode().splitlines()
    return metadata, {(crate, version.removeprefix("v")) for crate, version, *_ in (line.split() for line in lines if line)}


def edges(metadata, exact=None):
    """Packages by their ids, and of each the ids of what it is linked with. `exact`: (name, version) of all that is, where that is known."""
    packages = {package["id"]: package for package in metadata["packages"]}

    def is_linked(key):
        package = packages[key]
        is_macro = any("proc-macro" in target["kind"] for target in package["targets"])
        return not is_macro and (exact is None or (package["name"], package["version"]) in exact)

    needs = {}
    for node in metadata["resolve"]["nodes"]:
        normal = [needed["pkg"] for needed in node["deps"] if any(kind["kind"] is None for kind in needed["dep_kinds"])]
        needs[node["id"]] = [key for key in normal if is_linked(key)]
    return packages, needs


def reached(metadata, program, exact=None):
    """Ids of the packages that a program (the name of its package) contains, itself included."""
    packages, needs = edges(metadata, exact)
    left = [key for key, package in packages.items() if package["name"] == program and package["source"] is None]
    seen = set()
    while left:
        key = left.pop()
        if key not in seen:
            seen.add(key)
            left += needs[key]
    return seen


def linked(metadata, program, exact=None):
    """Packages from outside of the tree that are linked into a program, sorted. Raises NotAllowed where there is none, or one whose licence is not allowed."""
    seen = reached(metadata, program, exact)
    outside = [package for package in metadata["packages"] if package["id"] in seen and package["source"] is not None]
    if not outside:
        raise NotAllowed(f"{program}: cargo metadata names no crate that is linked into it")
    for package in outside:
        check(package)
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def check(package):
    """Raises NotAllowed where a package's licence is not allowed."""
    if not is_allowed(package["license"]):
        title = f"{package['name']} {package['version']}"
        raise NotAllowed(f"{title} has the licence {package['license']!r}: if its terms can be kept, add it to ALLOWED in tools/third_party.py")


def texts(package):
    """A package's licence texts, by their files' paths: those of its root, and of libraries of C that it brings along (one folder further down). Raises
    NotAllowed where it has none, and its licence is none whose text is known."""
    root = pathlib.Path(package["manifest_path"]).parent
    found = {path.name: path for path in sorted(root.iterdir()) if path.is_file() and TEXTS.fullmatch(path.name) and not SOURCES.fullmatch(path.name)}
    stated = package.get("license_file")
    if stated and (root / stated).is_file():
        found.setdefault(stated, root / stated)
    names = [name.lower() for name in found]
    if re.search(r"\bMIT\b", package["license"] or "") and " AND " not in package["license"] and any("mit" in re.split(r"[-_.]", name) for name in names):
        found = {name: path for name, path in found.items() if not re.search(r"apache|bsl|boost|zlib|unlicense|bsd", name, re.IGNORECASE)}
    # Beside a text in LICENSE, COPYING has the GPL, as another choice.
    below = {path.relative_to(root).as_posix(): path for path in sorted(root.glob("*/LICENSE*")) if path.is_file()} if package.get("links") else {}
    read = {name: path.read_text(encoding="utf-8", errors="replace").strip() for name, path in (found | below).items()}
    return read or standard_text(package)


def standard_text(package):
    """The text of one of the licences that a package may be used under, below its authors' names."""
    known = [name for name in re.split(r" OR ", spdx(package["license"])) if name in STANDARD]
    if not known:
        raise NotAllowed(f"{package['name']} {package['version']} brings no text of its licence {package['license']}: add it to packaging/licenses, and there")
    authors = ", ".join(re.sub(r" *<[^>]*>", "", author) for author in package["authors"]) or f"the authors of {package['name']}"
    return {known[0]: f"Copyright (c) {authors}\n\n{(ROOT / STANDARD[known[0]]).read_text(encoding='utf-8').strip(chr(10))}"}


def bundled(tree):
    """Packages of npm whose code is in the HTML report (those of web/package-lock.json that are not for development only), in the form of `cargo metadata`.
    Raises NotAllowed."""
    lock = json.loads((tree / "web/package-lock.json").read_text(encoding="utf-8"))
    found = []
    for path, entry in sorted(lock["packages"].items()):
        if path and not entry.get("dev"):
            name = path.rpartition("node_modules/")[2]
            made = {"name": name, "version": entry["version"], "license": entry.get("license"), "authors": [], "source": "npm",
                    "integrity": entry.get("integrity", ""), "repository": f"https://www.npmjs.com/package/{name}",
                    "manifest_path": str(tree / "web" / path / "package.json")}
            check(made)
            found.append(made)
    return found


def of_rust(sysroot):
    """Notices of Rust's standard library, which the compiler brings along, as text. Empty where it does not: distributions' own may not."""
    path = pathlib.Path(sysroot, "share/doc/rust/COPYRIGHT-library.html")
    if not path.is_file():
        return ""
    page = re.sub(r"(?s)<(style|script|head).*?</\1>", "", path.read_text(encoding="utf-8"))
    page = html.unescape(re.sub(r"<[^>]*>", "", page))
    lines = re.sub(r"[ \t]+$", "", page, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", lines).strip() + "\n"


def notices(packages, of_library=""):
    """The text of the notices of packages (`linked`, `bundled`) and of Rust's standard library; equal texts are there once. Raises NotAllowed."""
    parts, bodies = [HEADING], {}
    for package in packages:
        lines = [f"{package['name']} {package['version']}: {package['license']}"]
        lines.append(f"  {package.get('repository') or 'https://crates.io/crates/' + package['name']}")
        for name, text in texts(package).items():
            same = bodies.setdefault(" ".join(text.split()), (len(bodies) + 1, name, text))
            lines.append(f"  {name}: text {same[0]}")
        parts.append("\n".join(lines) + "\n")
    for number, name, text in bodies.values():
        parts.append(f"{'-' * 79}\nText {number} ({name})\n\n{text}\n")
    library = of_library or f"Rust's standard library: {OURS}, copyright The Rust Project Contributors, https://github.com/rust-lang/rust\n"
    return "\n".join([*parts, f"{'-' * 79}\n{library}"])


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[-2].strip())
    program, rustc = sys.argv[1], os.environ.get("RUSTC", "rustc")
    # Names of authors, whatever the language of the user's messages is.
    sys.stdout.reconfigure(encoding="utf-8")

    def said(command):
        return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True).stdout

    try:
        host = re.search(r"^host: (\S+)$", said([rustc, "-vV"]).decode(), re.MULTILINE)[1]
        metadata, exact = of_cargo(program, host, ROOT / "Cargo.toml", said)
        packages = linked(metadata, program, exact)
        sysroot = said([rustc, "--print", "sysroot"]).decode().strip()
        print(notices([*packages, *(bundled(ROOT) if program == "numapilot" else [])], of_rust(sysroot)), end="")
    except (NotAllowed, OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"third_party: {error}")


if __name__ == "__main__":
    main()
