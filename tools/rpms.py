"""Packages for distributions with rpm, of the same files as the Debian packages. For tools/packages.

rpmbuild writes them, from one spec whose packages are the tables of packaging/packages.toml. What they need and provide is written here from the ELF files, in
the words of rpm's own elfdeps: that one does not see what a program carries as bytes, and takes a library for one only if it may be executed.
"""

import pathlib
import re
import shutil
import subprocess
import time

from packing import MAINTAINER, Entry, Failed, bytes_of, entries_of, rpm_layout, run, stage, symbols_of
from third_party import OURS

# rpm's names of the architectures that elf.MACHINES has by Debian's.
ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64", "riscv64": "riscv64", "ppc64el": "ppc64le", "all": "noarch"}
# Packages that Debian names in another way.
NAMES = {"g++": "gcc-c++", "gfortran": "gcc-gfortran", "linux-perf": "perf", "pkg-config": "pkgconfig"}
# No traces of the machine and its time, nothing done to our files (whose times are the commit's already), and a compression that every rpm of the last ten
# years reads.
MACROS = {
    "_buildhost": "localhost",
    # Of the processor that packs: packages for all processors would have other bytes on each.
    "_target_platform": "linux",
    "use_source_date_epoch_as_buildtime": "1",
    "source_date_epoch_from_changelog": "0",
    "_build_id_links": "none",
    "_binary_payload": "w6.xzdio",
    "_rpmfilename": "%%{NAME}.rpm",
    "debug_package": "%{nil}",
    "__spec_install_post": "%{nil}",
    "optflags": "%{nil}",
}


def needs(files):
    """What ELF files need, as elfdeps names it: each library, and each version of symbols."""
    named = {f"{library}()(64bit)" for file in files for library in file.needed}
    return sorted(named | {f"{library}({version})(64bit)" for file in files for library, versions in file.versions.items() for version in versions})


def provides(files):
    """What ELF files bring for others, as elfdeps names it. Nothing for programs."""
    return sorted(f"{file.soname}({version})(64bit)" for file in files if file.soname for version in ["", *file.defines])


def pkg_config(entries):
    """What pkg-config files bring, as rpm's own pkgconfigdeps names it. Raises Failed for one without a version."""
    provided = []
    for target, entry in sorted(entries.items()):
        if target.endswith(".pc"):
            version = re.search(r"^Version: *(\S+)$", bytes_of(entry).decode(), re.MULTILINE)
            if version is None:
                raise Failed(f"{target} has no line `Version`")
            provided.append(f"pkgconfig({pathlib.PurePosixPath(target).stem}) = {version[1]}")
    return provided


def name_of(package, tables):
    """rpm's name of a package: of ours as packages.toml says, of others as Fedora names them."""
    return tables[package].get("rpm", package) if package in tables else NAMES.get(package, package)


def relation(text, tables, version):
    """An entry of Depends (`name (= {version})`) as rpm writes it."""
    found = re.fullmatch(r"(\S+)(?: \((=|>=) (\S+)\))?", text.format(version=version))
    if found is None:
        raise Failed(f"packaging/packages.toml: `{text}` is no name with = or >=")
    name = name_of(found[1], tables)
    return f"{name} {found[2]} {found[3]}" if found[2] else name


def escaped(text):
    """Text in which rpm finds no macros."""
    return text.replace("%", "%%")


def files_of(entries, conffiles):
    """Lines of %files: folders of ours, and each file by its name."""
    folders = {parent.as_posix() for target in entries for parent in pathlib.PurePosixPath(target).parents}
    ours = sorted(folder for folder in folders if "numapilot" in folder or "/.build-id/" in folder)
    lines = ["%defattr(-, root, root, -)", *(f'%dir "/{escaped(folder)}"' for folder in ours)]
    for target in sorted(entries):
        kind = "%config(noreplace) " if f"/{target}" in conffiles else "%license " if target.startswith("usr/share/licenses/") else ""
        lines.append(f'{kind}"/{escaped(target)}"')
    return lines


def scriptlets(name, table, folder):
    """What is run when a package is installed and removed: [(section's options, text)]."""
    made = []
    for kind in table.get("rpm_scripts", []):
        made.append((f"%{kind} -n {name}", escaped((folder / f"{name}.{kind}").read_text(encoding="utf-8"))))
    if "soname" in table:
        made += [(f"%{kind} -n {name} -p /sbin/ldconfig", "") for kind in ["post", "postun"]]
    return made


def capital(text):
    """A summary as rpm's distributions begin it."""
    return text[:1].upper() + text[1:]


def package_section(name, table, own, entries, tables, release):
    """Lines of a package's header and description. `own`: its ELF files, `table["licence"]`: the SPDX expression of all that is in it."""
    if "debug" not in table:
        required, provided = needs(own), provides(own) + pkg_config(entries)
    else:
        required, provided = [], []
    required += [relation(text, tables, release.package_version) for text in table.get("depends", [])]
    fields = [("Summary", capital(escaped(table["summary"]))), ("License", table["licence"]), ("AutoReqProv", "no")]
    fields += [("BuildArch", "noarch")] if table.get("architecture") == "all" else []
    fields += [("Requires", text) for text in required] + [("Provides", text) for text in provided]
    fields += [("Suggests", name_of(other, tables)) for other in table.get("suggests", [])]
    head = [f"{field}: {value}" for field, value in fields]
    return ([] if name == "numapilot" else [f"%package -n {name}"]) + head + ["", f"%description -n {name}", escaped(table["description"].strip()), ""]


def spec(parts, tables, release):
    """The spec of all packages. `parts`: of each, its rpm name, table, ELF files, entries and scriptlets; the first is numapilot, as all are built from it."""
    lines = ["Name: numapilot", f"Version: {release.package_version}", "Release: 1", f"URL: {release.homepage}"]
    lines += [f"{tag}: {escaped(MAINTAINER)}" for tag in ["Vendor", "Packager"]]
    for name, table, own, entries, _ in parts:
        lines += package_section(name, table, own, entries, tables, release)
    lines += ["%install", 'cp -a "%{staged}/." "%{buildroot}"', ""]
    for name, table, _, entries, scripts in parts:
        for section, text in scripts:
            lines += [section, text]
        lines += [f"%files -n {name}", *files_of(entries, table.get("conffiles", [])), ""]
    date = time.strftime("%a %b %d %Y", time.gmtime(release.epoch))
    lines += ["%changelog", f"* {date} {escaped(MAINTAINER)} - {release.package_version}-1", "- What changed: CHANGELOG.md in /usr/share/doc/numapilot.", ""]
    return "\n".join(lines)


def of_all_processors(file):
    """Takes the number of the processor that packed out of the beginning of a package that is for all of them: its bytes are then the same wherever it is made.
    rpm reads neither that number nor what else its place (the lead) has, and no sum is of it. `file` calls 255 noarch. Raises Failed for another file."""
    with open(file, "r+b") as opened:
        # Magic number, version 3.0, a binary package, the processor: Linux Standard Base, "Package File Format".
        if opened.read(8) != b"\xed\xab\xee\xdb\x03\x00\x00\x00":
            raise Failed(f"{file}: rpmbuild wrote a package that does not begin as one")
        opened.write(b"\x00\xff")


def parts_of(tables, found, contents, release, tree, work):
    """What `spec` takes of every package, and of one with debug symbols for each that has programs."""
    layout, folders, parts = rpm_layout(), {"tree": tree, "built": work / "built"}, []
    for package, table in tables.items():
        name = name_of(package, tables)
        entries = entries_of(name, table["files"], layout, folders)
        if entries is None:
            continue
        own = [found[source.removeprefix("built/")] for source in table["files"].values() if source.removeprefix("built/") in found]
        # Where documents are left out, these are kept.
        kept, inside = f"usr/share/licenses/{name}", contents.get(table.get("cargo"))
        table = table | {"licence": inside.licence if inside else OURS}
        entries |= {f"{kept}/{text}": Entry(path=tree / text) for text in ["LICENSE-APACHE", "LICENSE-MIT"]}
        entries |= inside.entries(kept, layout.doc.format(package=name)) if inside else {}
        parts.append((name, table, own, entries, scriptlets(name, table, tree / "packaging/rpm")))
        if own:
            summary = f"debug symbols for {name}"
            text = f"Debuggers and profilers find them by the build ids of\n{name}'s files."
            debug = {"summary": summary, "description": text, "licence": table["licence"], "depends": [f"{package} (= {{version}})"], "debug": True}
            parts.append((f"{name}-debuginfo", debug, own, symbols_of(own, work / "symbols", layout.debug), []))
    return parts


def make(tables, found, contents, release, tree, work, out):
    """Builds every .rpm. `contents`: packing.Contents by the program of Rust."""
    parts = parts_of(tables, found, contents, release, tree, work)
    folder, together = work / "rpm", {}
    for name, _, _, entries, _ in parts:
        if twice := together.keys() & entries.keys():
            raise Failed(f"{name}: {min(twice)} is in another package, too")
        together |= entries
    stage(together, folder / "staged", release.epoch)
    path = folder / "numapilot.spec"
    path.write_text(spec(parts, tables, release), encoding="utf-8")
    own = {"_topdir": folder, "_rpmdir": folder / "made", "_builddir": folder, "_dbpath": folder / "db", "_tmppath": folder, "staged": folder / "staged"}
    defines = [word for macro, value in (MACROS | own).items() for word in ("--define", f"{macro} {value}")]
    target = f"{ARCHITECTURES[release.architecture]}-linux"
    # Macros of whoever builds them change nothing.
    command = ["rpmbuild", "--quiet", "-bb", "--target", target, *defines, path]
    run(command, release.epoch, {"HOME": str(folder)}, stdout=subprocess.DEVNULL)
    made = []
    for name, table, _, _, _ in parts:
        file = out / f"{name}-{release.file_version}-1.{ARCHITECTURES[table.get('architecture', release.architecture)]}.rpm"
        shutil.move(folder / "made" / f"{name}.rpm", file)
        if table.get("architecture") == "all":
            of_all_processors(file)
        made.append(file)
    return made
