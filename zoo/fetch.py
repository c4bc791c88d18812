"""Debian's sources and the packages that building them needs.

apt gets a list of sources and a folder of states of its own, made from what the system itself is configured to use: the system's lists stay as they are, and no
mirror is named here.
"""

import functools
import os
import re
import shutil
import subprocess

import files


# Debian's suites beside the system's own, for packages that its mirror does not have as a whole.
SUITES = ("oldstable", "stable", "testing", "unstable")
UPSTREAM = " (upstream alone)"


class Failed(Exception):
    """What could not be had, and what apt said."""


def run(command, cwd=None):
    environment = dict(os.environ, LC_ALL="C", DEBIAN_FRONTEND="noninteractive")
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise Failed(f"{command[0]} is missing: the zoo is made of Debian's source packages, so it needs Debian or Ubuntu") from error
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip() and not line.startswith("W:")]
        # Without the mirror's name and address.
        said = re.sub(r"[a-z]+://\S*/|\s*\[IP: [^]]*\]", "", " | ".join(lines[-4:]))
        raise Failed(f"{command[0]} {command[1]} failed with {done.returncode}: {said}")
    return done.stdout


def source_lines(targets, suites=()):
    """`deb-src` lines for what `apt-get indextargets` listed as `kind|origin|mirror|release|component|keyring`, a line each.

    Debian's and Ubuntu's own archives only; of Debian's, on the same mirrors, other `suites`, too.
    """
    lines = set()
    for target in targets.splitlines():
        kind, origin, mirror, release, component, keyring = target.split("|")
        if kind == "Packages" and origin in ("Debian", "Ubuntu"):
            options = f"[signed-by={keyring}] " if keyring else ""
            # A release with a hyphen is an addition to another one, often on a mirror of its own.
            others = suites if origin == "Debian" and "-" not in release else ()
            lines.update(f"deb-src {options}{mirror} {one} {component}" for one in (release, *others))
    return sorted(lines)


def releases(targets):
    """The releases that the system itself uses."""
    return {line.split("|")[3] for line in targets.splitlines() if line.startswith("Packages|")}


def newer(one, other):
    return subprocess.run(["dpkg", "--compare-versions", one, "gt", other], check=False).returncode == 0


def candidates(listed, source, own):
    """Versions of what `apt-cache madison` listed, in the order in which they are tried.

    Those of the system's own releases come first, newest first, then the others, nearest first.
    """
    mine, others = set(), set()
    for line in listed.splitlines():
        name, version, where = (part.strip() for part in line.split("|"))
        if name == source and where.endswith(" Sources"):
            release = where.split()[1].split("/")[0]
            (mine if release in own else others).add(version)
    order = functools.cmp_to_key(lambda a, b: 1 if newer(a, b) else -1 if newer(b, a) else 0)
    return sorted(mine, key=order, reverse=True) + sorted(others - mine, key=order)


class Archive:
    """apt with a configuration of its own, below one folder."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.own = set()
        for part in ("state/lists/partial", "cache/archives/partial"):
            os.makedirs(os.path.join(self.folder, part), exist_ok=True)
        self.options = []
        for key, value in (
            ("Dir::State", "state"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::SourceList", "sources.list"),
        ):
            self.options += ["-o", f"{key}={os.path.join(self.folder, value)}"]
        for option in ("Dir::Etc::SourceParts=/dev/null", "Acquire::Languages=none", "Acquire::Retries=3", "APT::Sandbox::User=", "Debug::NoLocking=true"):
            self.options += ["-o", option]

    def targets(self):
        """What the system's apt is configured to use, as for `source_lines`."""
        keyrings = {"Debian": "/usr/share/keyrings/debian-archive-keyring.gpg", "Ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring.gpg"}
        listed = run(["apt-get", "indextargets", "--format", "$(IDENTIFIER)|$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"])
        if not listed.strip():
            raise Failed("apt knows no packages here; run `apt-get update` as root first")
        found = []
        for target in listed.splitlines():
            keyring = keyrings.get(target.split("|")[1], "")
            found.append(target + "|" + (keyring if os.path.exists(keyring) else ""))
        return "\n".join(found)

    def update(self):
        """Fetches the lists of sources, once for each configuration: of the system's releases and, where the mirror has them, of Debian's other suites."""
        targets = self.targets()
        self.own = releases(targets)
        wanted, fewer = ("".join(line + "\n" for line in source_lines(targets, suites)) for suites in (SUITES, ()))
        path, done = os.path.join(self.folder, "sources.list"), os.path.join(self.folder, "updated")
        if read(path) in (wanted, fewer) and read(done) == wanted:
            return
        for text in (wanted, fewer):
            files.write(path, text)
            try:
                run(["apt-get", *self.options, "-q", "update"])
                break
            except Failed:
                if text == fewer:
                    raise
        files.write(done, wanted)

    def fetch(self, source, folder):
        """Downloads the package into `folder`, checked against its signed list, and tells its version.

        A mirror may lack files that its lists name. So the first version is taken that it has as a whole, and where there is none the first whose upstream
        archive it has: without Debian's patches, which the version says.
        """
        if os.path.isdir(folder):
            return read(os.path.join(folder, "version"))
        versions = candidates(run(["apt-cache", *self.options, "madison", source]), source, self.own)
        if not versions:
            raise Failed(f"{source}: Debian has no such source package")
        work, first = folder + ".part", None
        for more, note in (([], ""), (["--tar-only"], UPSTREAM)):
            for version in versions:
                shutil.rmtree(work, ignore_errors=True)
                os.makedirs(work)
                try:
                    run(["apt-get", "source", *self.options, "-q", "--only-source", "--download-only", *more, f"{source}={version}"], cwd=work)
                except Failed as error:
                    first = first or error
                    continue
                files.write(os.path.join(work, "version"), version + note)
                os.replace(work, folder)
                return version + note
        shutil.rmtree(work, ignore_errors=True)
        raise Failed(f"the mirror has the files of none of {', '.join(versions)}: {first}")

    def unpack(self, archive, folder):
        """Unpacks what `fetch` downloaded as `folder`, with Debian's patches where it has them."""
        if os.path.isdir(folder):
            return
        work = folder + ".part"
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        tree = os.path.join(work, "tree")
        names = sorted(os.listdir(archive))
        dsc = [name for name in names if name.endswith(".dsc")]
        if dsc and not read(os.path.join(archive, "version")).endswith(UPSTREAM):
            run(["dpkg-source", "--no-check", "-x", os.path.join(archive, dsc[0]), tree])
        else:
            os.makedirs(tree)
            tar = next(name for name in names if ".orig.tar." in name and not name.endswith(".asc"))
            run(["tar", "-C", tree, "--no-same-owner", "-xf", os.path.join(archive, tar)])
            inside = os.listdir(tree)
            if len(inside) == 1:
                tree = os.path.join(tree, inside[0])
        os.replace(tree, folder)
        shutil.rmtree(work, ignore_errors=True)


def read(path):
    """A file's text; empty where there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def missing(packages):
    """Those that are not installed."""
    if not packages:
        return []
    done = subprocess.run(
        ["dpkg-query", "-W", "-f=${Package} ${db:Status-Status}\n", *packages], capture_output=True, text=True, check=False
    )
    there = {line.split()[0] for line in done.stdout.splitlines() if line.endswith(" installed")}
    return sorted(set(packages) - there)


def install(packages):
    """Installs what is missing, by the system's own apt; without root it says what to run."""
    absent = missing(packages)
    if not absent:
        return
    if os.geteuid() != 0:
        raise Failed(f"as root, run: apt-get install {' '.join(absent)}")
    run(["apt-get", "install", "-y", "-q", "--no-install-recommends", *absent])
