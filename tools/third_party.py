"""Notices of what a program of Rust contains: names, versions and licences of the crates that are linked into it, with their texts. For tools/packages.

What is linked comes from `cargo metadata`; tests, build scripts and procedural macros are in no program. Texts come from each crate's sources, which Cargo has
unpacked to build it; where a crate has none, its licence and authors are named.

usage: cargo metadata --format-version 1 | python3 tools/third_party.py PROGRAM
"""

import json
import pathlib
import re
import sys

# Licences (SPDX) under which a program of ours may be handed on; each asks at most that its text goes along.
ALLOWED = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause", "BSL-1.0", "CC0-1.0", "ISC", "MIT", "MIT-0", "Unicode-3.0",
    "Unicode-DFS-2016", "Unlicense", "Zlib", "bzip2-1.0.6",
}
TEXTS = re.compile(r"(licen[cs]e|copying|copyright|notice|unlicense)([-_.].*)?", re.IGNORECASE)
SOURCES = re.compile(r".*\.(c|h|rs|py|html)", re.IGNORECASE)
HEADING = """Third-party software in this package
====================================

Programs of Rust contain the libraries that they use. Those below are linked into this package's files, beside Rust's standard library (MIT OR Apache-2.0,
copyright The Rust Project Contributors, https://github.com/rust-lang/rust). "OR" is a choice: where MIT is among the choices, its text is the one that follows.
"""


class NotAllowed(Exception):
    """A crate's licence is none that this knows."""


def is_allowed(expression):
    """Whether one of an SPDX expression's choices has allowed licences only. `/` is `OR`, as older crates write it."""
    words = re.findall(r"[()]|[^()\s/]+|/", expression or "")
    words = ["OR" if word == "/" else word for word in words]
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


def linked(metadata, program):
    """Packages from outside of the tree that are linked into a program (the name of its package), sorted."""
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    left = [package["id"] for package in metadata["packages"] if package["name"] == program and package["source"] is None]
    seen = set()
    while left:
        key = left.pop()
        if key in seen or any("proc-macro" in target["kind"] for target in packages[key]["targets"]):
            continue
        seen.add(key)
        left += [needed["pkg"] for needed in nodes[key]["deps"] if any(kind["kind"] is None for kind in needed["dep_kinds"])]
    outside = (packages[key] for key in seen if packages[key]["source"] is not None)
    return sorted(outside, key=lambda package: (package["name"], package["version"]))


def texts(package):
    """A package's licence texts, by their files' paths: those of its root, and of libraries of C that it brings along (one folder further down)."""
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
    return {name: path.read_text(encoding="utf-8", errors="replace").strip() for name, path in (found | below).items()}


def notices(metadata, program):
    """The text of the notices of a program; equal texts are there once. Raises NotAllowed."""
    packages = linked(metadata, program)
    if not packages:
        raise NotAllowed(f"{program}: cargo metadata names no crate that is linked into it")
    parts, bodies = [HEADING], {}
    for package in packages:
        title = f"{package['name']} {package['version']}"
        if not is_allowed(package["license"]):
            raise NotAllowed(f"{title} has the licence {package['license']!r}: if its terms can be kept, add it to ALLOWED in tools/third_party.py")
        lines = [f"{title}: {package['license']}", f"  {package.get('repository') or 'https://crates.io/crates/' + package['name']}"]
        found = texts(package)
        if not found and package.get("authors"):
            lines.append(f"  by {', '.join(package['authors'])}")
        for name, text in found.items():
            same = bodies.setdefault(" ".join(text.split()), (len(bodies) + 1, name, text))
            lines.append(f"  {name}: text {same[0]}")
        parts.append("\n".join(lines) + "\n")
    for number, name, text in bodies.values():
        parts.append(f"{'-' * 79}\nText {number} ({name})\n\n{text}\n")
    return "\n".join(parts)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.split("\n\n")[-1].strip())
    try:
        print(notices(json.load(sys.stdin), sys.argv[1]), end="")
    except NotAllowed as error:
        sys.exit(f"third_party: {error}")


if __name__ == "__main__":
    main()
