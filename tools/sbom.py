"""Software bills of materials of our packages, as CycloneDX 1.5 in JSON (https://cyclonedx.org/docs/1.5/json/). For tools/packages.

A bill names every program and library of ours, and what is inside: crates with the checksums of Cargo.lock, libraries of C that crates bring along, packages of
npm in the HTML report, Rust's standard library, and what the linker takes from the packages of the building machine. What the programs need of the
system they run on is named, too, as not inside. The same input gives the same bytes: its date is the packages', its number a sum of the rest.
"""

import base64
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import platform
import re
import subprocess
import time
import tomllib
import urllib.parse
import uuid

import third_party

# Files that gcc links into every program or shared object, and the licences of the packages that they come from; both let programs have any licence.
STATIC = {
    "crti.o": "LGPL-2.1-or-later WITH GCC-exception-2.0",
    "libc_nonshared.a": "LGPL-2.1-or-later WITH GCC-exception-2.0",
    "crtbeginS.o": "GPL-3.0-or-later WITH GCC-exception-3.1",
    "libgcc.a": "GPL-3.0-or-later WITH GCC-exception-3.1",
}
# Of the system's libraries (Debian's packages of them).
DYNAMIC = {"libc6": "LGPL-2.1-or-later", "libgcc-s1": "GPL-3.0-or-later WITH GCC-exception-3.1"}


@dataclasses.dataclass(frozen=True)
class Program:
    """A program or library of ours."""

    name: str
    kind: str  # application, library
    file: pathlib.Path  # as it is in the packages
    metadata: dict | None  # of `cargo metadata`; None for one that has no crates
    package: str  # the Rust package's name
    exact: set | None  # third_party.edges
    lock: pathlib.Path | None  # Cargo.lock
    needs: tuple  # of the system: entries of Debian's Depends


def purl(kind, *path, version="", **qualifiers):
    """A package URL (https://github.com/package-url/purl-spec)."""
    quoted = "/".join(urllib.parse.quote(part, safe="") for part in path)
    more = "&".join(f"{key}={urllib.parse.quote(value, safe='')}" for key, value in sorted(qualifiers.items()) if value)
    return f"pkg:{kind}/{quoted}" + (f"@{urllib.parse.quote(version, safe='')}" if version else "") + (f"?{more}" if more else "")


def component(kind, name, version, licence, url, **more):
    """A component; its reference within the bill is its package URL."""
    made = {"type": kind, "bom-ref": url, "name": name, "version": version, "licenses": [{"expression": third_party.spdx(licence)}], "purl": url}
    return {key: value for key, value in (made | more).items() if value}


def crate(package, checksums):
    """A crate from outside of the tree. Its checksum is that of its archive on crates.io."""
    url = purl("cargo", package["name"], version=package["version"])
    checksum = checksums.get((package["name"], package["version"]))
    hashes = [{"alg": "SHA-256", "content": checksum}] if checksum else None
    links = [{"type": "vcs", "url": package["repository"]}] if package.get("repository") else None
    return component("library", package["name"], package["version"], package["license"], url, hashes=hashes, externalReferences=links)


def brought_along(package):
    """A library of C whose sources are in a crate, by the crate's version (`2.0.16+zstd.1.5.7`); None where there is none."""
    found = re.fullmatch(r"[^+]*\+([a-z][a-z0-9]*)[.-]v?(\d[\w.]*)", package["version"])
    if not package.get("links") or found is None:
        return None
    return component("library", found[1], found[2], package["license"], purl("generic", found[1], version=found[2]))


def of_npm(package):
    """A package of npm (third_party.bundled)."""
    algorithm, _, data = package["integrity"].partition("-")
    hashes = [{"alg": algorithm.upper().replace("SHA", "SHA-"), "content": base64.b64decode(data).hex()}] if data else None
    url = purl("npm", *package["name"].split("/"), version=package["version"])
    return component("library", package["name"], package["version"], package["license"], url, hashes=hashes)


def checksums_of(lock):
    """Checksums of Cargo.lock by name and version."""
    packages = tomllib.loads(lock.read_text(encoding="utf-8"))["package"]
    return {(package["name"], package["version"]): package["checksum"] for package in packages if "checksum" in package}


def said(*command):
    """What a command prints; empty where it fails or is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"}).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


@functools.cache
def from_the_linker():
    """What gcc links into programs, as packages of the Debian (or kin) on which it runs. Empty where dpkg does not know them."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return ()
    made = {}
    for file, licence in STATIC.items():
        path = os.path.realpath(said("gcc", f"-print-file-name={file}"))
        package = said("dpkg-query", "--search", path).partition(": ")[0].partition(":")[0]
        version, _, architecture = said("dpkg-query", "--show", "--showformat=${Version} ${Architecture}\n", package).partition("\n")[0].partition(" ")
        if version:
            url = purl("deb", system.get("ID", "debian"), package, version=version, arch=architecture)
            made[url] = component("library", package, version, licence, url, description="start files and small functions that gcc links into every program")
    return tuple(made[url] for url in sorted(made))


def of_the_system(need):
    """An entry of Debian's Depends as a component without a version: which one there is depends on the machine."""
    package, _, oldest = need.partition(" ")
    text = f"the system's own{', ' + oldest.strip('()>= ') + ' or later' if oldest else ''}; not in these packages"
    return component("library", package, "", DYNAMIC[package], purl("deb", "debian", package), description=text)


def of_rust(version):
    """Rust's standard library."""
    return component("library", "std", version, third_party.OURS, purl("github", "rust-lang", "rust", version=version))


def crates_of(program, components, depends):
    """Adds a program's crates to `components`, and who is linked with whom to `depends`. References of those that our own code calls."""
    packages, needs = third_party.edges(program.metadata, program.exact)
    seen, checksums = third_party.reached(program.metadata, program.package, program.exact), checksums_of(program.lock)
    references = {}
    for key in seen:
        if packages[key]["source"] is not None:
            made = crate(packages[key], checksums)
            components[made["bom-ref"]], references[key] = made, made["bom-ref"]
    for key, reference in references.items():
        inner = brought_along(packages[key])
        depends.setdefault(reference, set()).update(references[other] for other in needs[key] if other in references)
        if inner:
            components[inner["bom-ref"]] = inner
            depends[reference].add(inner["bom-ref"])
    return {references[other] for key in seen if key not in references for other in needs[key] if other in references}


def document(name, version, homepage, epoch, programs, in_page, rust):
    """The bill of programs, as text. `in_page`: packages of npm that the program numapilot has in its page; `rust`: the compiler's version."""
    components, depends, linker, library = {}, {}, from_the_linker(), of_rust(rust)
    root = component("application", name, version, third_party.OURS, purl("generic", name, version=version), description="packages of numapilot")
    root["externalReferences"] = [{"type": "vcs", "url": homepage}]
    root["bom-ref"] = "packages"
    for program in programs:
        hashes = [{"alg": "SHA-256", "content": hashlib.sha256(program.file.read_bytes()).hexdigest()}]
        own = component(program.kind, program.name, version, third_party.OURS, purl("generic", program.name, version=version), hashes=hashes)
        inside = [*linker, *map(of_the_system, program.needs)]
        inside += [library] if program.metadata else []
        inside += [of_npm(package) for package in in_page] if program.name == "numapilot" else []
        components |= {made["bom-ref"]: made for made in [own, *inside]}
        depends[own["bom-ref"]] = {made["bom-ref"] for made in inside}
        if program.metadata:
            depends[own["bom-ref"]] |= crates_of(program, components, depends)
    depends["packages"] = {purl("generic", program.name, version=version) for program in programs}
    made = {
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch)), "component": root},
        "components": [components[reference] for reference in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(depends.get(ref, ()))} for ref in sorted({"packages", *components})],
    }
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(made, sort_keys=True))
    return json.dumps(made | {"serialNumber": f"urn:uuid:{number}"}, indent=1, sort_keys=True) + "\n"
