"""What packages of every kind share (tools/packages, tools/rpms.py): the folders of each kind, the files in them, and writing these without traces of the
machine.
"""

import dataclasses
import gzip
import os
import pathlib
import re
import shutil
import subprocess

# Debian's form of it: a name and an address of mail.
MAINTAINER = "The numapilot developers <numapilot@users.noreply.github.com>"


class Failed(Exception):
    """Why there are no packages."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where files of each kind go, relative to the root of a package or of the tarball's folder."""

    bin: str
    lib: str
    include: str
    man: str
    bash: str
    zsh: str
    fish: str
    share: str
    doc: str
    unit: str
    etc: str
    debug: str
    # `prefix` and `libdir` of pkg-config files.
    pc_prefix: str
    pc_libdir: str
    # Whether manual pages and changelogs are compressed.
    is_compressed: bool
    # Of shared libraries: Debian forbids that they may be executed; tools of rpm take no others for libraries.
    library_mode: int = 0o644

    def target(self, template, package):
        """A target of packages.toml as a path of this layout."""
        folders = {name: getattr(self, name) for name in ("bin", "lib", "include", "man", "bash", "zsh", "fish", "share", "unit", "etc")}
        doc = self.doc.format(package=package)
        return template.format(**folders, doc=doc, examples=doc + "/examples")


def debian_layout(triplet):
    """Debian's folders; `triplet` names the architecture's folder of libraries."""
    share = "usr/share"
    completions = {"bash": f"{share}/bash-completion/completions", "zsh": f"{share}/zsh/vendor-completions", "fish": f"{share}/fish/vendor_completions.d"}
    return Layout("usr/bin", f"usr/lib/{triplet}", "usr/include", f"{share}/man/man1", **completions, share=share, doc=f"{share}/doc/{{package}}",
                  unit="usr/lib/systemd/system", etc="etc", debug="usr/lib/debug", pc_prefix="/usr", pc_libdir=f"${{prefix}}/lib/{triplet}", is_compressed=True)


def rpm_layout():
    """Folders of Fedora and its kin; openSUSE has the same."""
    share = "usr/share"
    completions = {"bash": f"{share}/bash-completion/completions", "zsh": f"{share}/zsh/site-functions", "fish": f"{share}/fish/vendor_completions.d"}
    return Layout("usr/bin", "usr/lib64", "usr/include", f"{share}/man/man1", **completions, share=share, doc=f"{share}/doc/{{package}}",
                  unit="usr/lib/systemd/system", etc="etc", debug="usr/lib/debug", pc_prefix="/usr", pc_libdir="${prefix}/lib64", is_compressed=True,
                  library_mode=0o755)


def tarball_layout():
    """Folders below any prefix. The unit names /usr/bin/numapilot, so it is an example here, and so is the configuration."""
    share, doc = "share", "share/doc/numapilot"
    completions = {"bash": f"{share}/bash-completion/completions", "zsh": f"{share}/zsh/site-functions", "fish": f"{share}/fish/vendor_completions.d"}
    return Layout("bin", "lib", "include", f"{share}/man/man1", **completions, share=share, doc=doc, unit=f"{doc}/examples/systemd", etc=f"{doc}/examples",
                  debug="lib/debug", pc_prefix="${pcfiledir}/../..", pc_libdir="${prefix}/lib", is_compressed=False)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One file of a package: a copy of another, given bytes, or a symbolic link."""

    path: pathlib.Path | None = None
    data: bytes | None = None
    link: str | None = None
    mode: int = 0o644


@dataclasses.dataclass(frozen=True)
class Release:
    """What all packages of one run share."""

    version: str  # the program's
    package_version: str  # Debian's, and the tarballs'
    epoch: int
    homepage: str
    architecture: str
    triplet: str

    @property
    def file_version(self):
        """The same in names of files: a server of releases may write `~` in another way, and the list of checksums would then name other files."""
        return self.package_version.replace("~", ".")


@dataclasses.dataclass(frozen=True)
class Contents:
    """What is to be told of what a program of Rust contains."""

    notices: str  # third_party.notices
    bill: str  # sbom.document
    licence: str  # SPDX expression of all of it

    def entries(self, notices, doc):
        """The files of it in a package: its notices in one folder, its bill of materials in another."""
        return {f"{notices}/THIRD-PARTY.gz": compressed(self.notices.encode()), f"{doc}/sbom.cdx.json": Entry(data=self.bill.encode())}


def relocated(text, prefix, libdir):
    """A pkg-config file with another `prefix` and `libdir`."""
    text, prefixes = re.subn(r"^prefix=.*$", lambda _: f"prefix={prefix}", text, flags=re.MULTILINE)
    text, libdirs = re.subn(r"^libdir=.*$", lambda _: f"libdir={libdir}", text, flags=re.MULTILINE)
    if (prefixes, libdirs) != (1, 1):
        raise Failed("a pkg-config file has no single `prefix` and `libdir`")
    return text


def matches(pattern, folders):
    """Files of a source: (path, path below the part of the pattern without *). `folders` maps a first word (`built`) to its folder; all else is the tree."""
    first, _, rest = pattern.partition("/")
    root, rest = (folders[first], rest) if first in folders else (folders["tree"], pattern)
    if "*" not in rest:
        path = root / rest
        return [(path, path.name)] if path.is_file() else []
    fixed = re.match(r"(?:[^*/]+/)*", rest)[0]
    return [(path, path.relative_to(root / fixed).as_posix()) for path in sorted(root.glob(rest)) if path.is_file()]


def compressed(data):
    """Bytes as an entry compressed by gzip, without name and time."""
    return Entry(data=gzip.compress(data, 9, mtime=0))


def prepared(target, path, layout):
    """The target's name, and its entry: compressed or relocated where the layout wants that."""
    if target.endswith(".pc"):
        return target, Entry(data=relocated(path.read_text(encoding="utf-8"), layout.pc_prefix, layout.pc_libdir).encode())
    if layout.is_compressed and target.startswith(layout.man + "/"):
        return target + ".gz", compressed(path.read_bytes())
    if re.search(r"\.so(\.\d+)+$", target):
        return target, Entry(path=path, mode=layout.library_mode)
    return target, Entry(path=path, mode=0o755 if target.startswith(layout.bin + "/") else 0o644)


def entries_of(package, files, layout, folders):
    """Files of a package in a layout, by path. None where its program was not built; raises Failed where anything else is missing."""
    entries = {}
    for template, source in files.items():
        target = layout.target(template, package)
        if source.startswith("-> "):
            entries[target] = Entry(link=source.removeprefix("-> "))
            continue
        found = matches(source, folders)
        if not found and source == "built/numapilot-query":
            return None
        if not found:
            raise Failed(f"{package}: {source}: no such file")
        for path, name in found:
            made, entry = prepared(target + name if target.endswith("/") else target, path, layout)
            entries[made] = entry
    return entries


def stage(entries, folder, epoch):
    """Writes entries below a new folder, with these modes and this time whatever the umask and the sources' times are."""
    folder.mkdir(parents=True)
    for target, entry in sorted(entries.items()):
        path = folder / target
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry.link is not None:
            path.symlink_to(entry.link)
            continue
        if entry.data is not None:
            path.write_bytes(entry.data)
        else:
            shutil.copyfile(entry.path, path)
        path.chmod(entry.mode)
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o755)
        os.utime(path, (epoch, epoch), follow_symlinks=False)


def bytes_of(entry):
    """The contents of a file's entry."""
    return entry.data if entry.data is not None else entry.path.read_bytes()


def run(command, epoch, more=None, **options):
    """Runs a command that must succeed, with the same language, time zone and date everywhere; `more`: further variables."""
    same = {"LC_ALL": "C", "TZ": "UTC", "SOURCE_DATE_EPOCH": str(epoch), "DPKG_DEB_THREADS_MAX": "1", "XZ_OPT": "", "XZ_DEFAULTS": "", "TAR_OPTIONS": ""}
    try:
        return subprocess.run([str(word) for word in command], check=True, env=os.environ | same | (more or {}), stdin=subprocess.DEVNULL, **options)
    except FileNotFoundError:
        raise Failed(f"{command[0]} is missing: run tools/setup packages") from None
    except subprocess.CalledProcessError as error:
        raise Failed(f"{' '.join(map(str, command))}: exit status {error.returncode}") from None


def symbols_of(found, symbols, folder):
    """Entries of the debug symbols of ELF files, below a layout's folder for them."""
    names = [f".build-id/{file.build_id[:2]}/{file.build_id[2:]}.debug" for file in found]
    return {f"{folder}/{name}": Entry(path=symbols / name) for name in names}
