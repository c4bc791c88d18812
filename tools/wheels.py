"""The wheel of the Python package. For tools/packages.

maturin builds wheels for whoever installs from the tree (crates/python). This one has the same files, from a library that cargo has built already: for another
processor it asks no Python of that processor, and the same files give the same bytes.

Formats: PEP 427 and its successor (packaging.python.org, "Binary distribution format"), core metadata 2.4, versions as PEP 440, manylinux as PEP 600.
"""

import base64
import hashlib
import re
import time
import tomllib
import zipfile

from packing import Entry, Failed, bytes_of

# Of cargo's library: what Python imports it as, from crates/python/pyproject.toml.
MODULE = "numapilot/_native.abi3.so"
# Its file, below the folder of programs, and the package of Rust.
LIBRARY, PACKAGE = "libnumapilot_native.so", "numapilot-python"
COMPRESSION = 9


def version_of(package_version):
    """The packages' version (0.1.0~rc.1~git20260101.abcdef12) as Python's tools sort it: before the release that it leads to."""
    found = re.fullmatch(r"(\d+\.\d+\.\d+)(?:~([a-z]+)\.?(\d+))?(?:~git(\d+)\.([0-9a-f.a-z]+))?", package_version)
    if found is None:
        raise Failed(f"{package_version} is no version that Python's tools can sort: name candidates such as 1.2.3-rc.1")
    number, candidate, count, day, commit = found.groups()
    kind = {"alpha": "a", "beta": "b", "rc": "rc"}.get(candidate) if candidate else ""
    if kind is None:
        raise Failed(f"{package_version}: Python's tools know alpha, beta and rc before a release, and no {candidate}")
    return number + (f"{kind}{count}" if kind else "") + (f".dev{day}+{commit}" if day else "")


def tag_of(library, triplet):
    """The wheel's tag: the oldest Python, the stable ABI, and the oldest glibc, by the symbols that an `elf.Elf` asks for."""
    versions = [name.removeprefix("GLIBC_").split(".") for names in library.versions.values() for name in names if re.fullmatch(r"GLIBC_\d+(\.\d+)+", name)]
    if not versions:
        raise Failed(f"{LIBRARY} asks for no version of glibc: a wheel names the oldest")
    major, minor, *_ = max([int(part) for part in version] for version in versions)
    # Older ones have names of their own, and Rust's standard library runs with none of them.
    if (major, minor) < (2, 17):
        major, minor = 2, 17
    return f"manylinux_{major}_{minor}_{triplet.split('-')[0]}"


def metadata(project, version, licences):
    """The file METADATA of the table `project` of pyproject.toml. `licences`: names of the files below dist-info/licenses."""
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version}", f"Summary: {project['description']}"]
    lines += [f"License-Expression: {project['license']}", *(f"License-File: {name}" for name in licences)]
    lines += [f"Requires-Python: {project['requires-python']}", *(f"Classifier: {text}" for text in project["classifiers"])]
    lines += [f"Project-URL: {name}, {address}" for name, address in project["urls"].items()]
    for extra, needs in project["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}", *(f'Requires-Dist: {need} ; extra == "{extra}"' for need in needs)]
    return "\n".join(lines) + "\n"


def record(entries, name):
    """The file RECORD: each other file with its sum and size."""
    lines = []
    for target, entry in sorted(entries.items()):
        data = bytes_of(entry)
        hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{target},sha256={hashed},{len(data)}")
    return "\n".join([*lines, f"{name},,", ""])


def entries_of(tree, library, notices, version, tag):
    """Files of the wheel by their paths. `library`: the stripped one, `notices`: what third_party says of it."""
    package = tree / "crates/python"
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    minimum = re.fullmatch(r">=(\d+)\.(\d+)", project["requires-python"])
    info = f"{project['name']}-{version}.dist-info"
    files = sorted(path for path in (package / "python").rglob("*") if path.suffix in (".py", ".pyi") or path.name == "py.typed")
    entries = {path.relative_to(package / "python").as_posix(): Entry(path=path) for path in files}
    entries[MODULE] = Entry(path=library, mode=0o755)
    licences = {name: (tree / name).read_bytes() for name in ["LICENSE-APACHE", "LICENSE-MIT"]} | {"THIRD-PARTY.txt": notices.encode()}
    entries |= {f"{info}/licenses/{name}": Entry(data=data) for name, data in licences.items()}
    named = f"cp{minimum[1]}{minimum[2]}-abi3-{tag}"
    entries[f"{info}/METADATA"] = Entry(data=metadata(project, version, licences).encode())
    entries[f"{info}/WHEEL"] = Entry(data=f"Wheel-Version: 1.0\nGenerator: numapilot\nRoot-Is-Purelib: false\nTag: {named}\n".encode())
    entries[f"{info}/RECORD"] = Entry(data=record(entries, f"{info}/RECORD").encode())
    return entries, f"{project['name']}-{version}-{named}.whl"


def make(tree, library, found, notices, release, out):
    """Packs the wheel; its file. `library`: the stripped shared object, `found`: what it is as `elf.Elf`."""
    entries, name = entries_of(tree, library, notices, version_of(release.package_version), tag_of(found, release.triplet))
    file = out / name
    # Times of a zip begin in 1980.
    date = time.gmtime(max(release.epoch, 315_532_800))[:6]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=COMPRESSION) as archive:
        # As the format advises, what tells of the files is behind them.
        for target, entry in sorted(entries.items(), key=lambda one: (".dist-info/" in one[0], one[0])):
            member = zipfile.ZipInfo(target, date)
            member.external_attr = (0o100000 | entry.mode) << 16
            # Of Unix, wherever it is made: else modes count for nothing.
            member.create_system = 3
            archive.writestr(member, bytes_of(entry), zipfile.ZIP_DEFLATED, COMPRESSION)
    return file
