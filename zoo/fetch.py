"""Debian's sources and the packages that building them needs.

apt gets a list of sources and a folder of states of its own, made from what the system itself is configured to use: the system's lists stay as they are, and no
mirror is named here.
"""

import os
import re
import shutil
import subprocess


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


def source_lines(targets):
    """`deb-src` lines for what `apt-get indextargets` listed as `kind|origin|mirror|release|component|keyring`, a line each.

    Debian's and Ubuntu's own archives only.
    """
    lines = set()
    for target in targets.splitlines():
        kind, origin, mirror, release, component, keyring = target.split("|")
        if kind == "Packages" and origin in ("Debian", "Ubuntu"):
            options = f"[signed-by={keyring}] " if keyring else ""
            lines.add(f"deb-src {options}{mirror} {release} {component}")
    return sorted(lines)


class Archive:
    """apt with a configuration of its own, below one folder."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
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

    def update(self):
        """Fetches the lists of sources, where there are none yet."""
        path = os.path.join(self.folder, "sources.list")
        if os.path.exists(path) and any(name.endswith("_Sources") for name in os.listdir(os.path.join(self.folder, "state/lists"))):
            return
        keyrings = {"Debian": "/usr/share/keyrings/debian-archive-keyring.gpg", "Ubuntu": "/usr/share/keyrings/ubuntu-archive-keyring.gpg"}
        listed = run(["apt-get", "indextargets", "--format", "$(IDENTIFIER)|$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"])
        if not listed.strip():
            raise Failed("apt knows no packages here; run `apt-get update` as root first")
        targets = []
        for target in listed.splitlines():
            keyring = keyrings.get(target.split("|")[1], "")
            targets.append(target + "|" + (keyring if os.path.exists(keyring) else ""))
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(source_lines("\n".join(targets))) + "\n")
        run(["apt-get", *self.options, "-q", "update"])

    def version(self, source):
        """The newest version of a source package."""
        text = run(["apt-cache", *self.options, "showsrc", source])
        versions = [line.split()[1] for line in text.splitlines() if line.startswith("Version: ")]
        if not versions:
            raise Failed(f"{source}: Debian has no such source package")
        newest = versions[0]
        for one in versions[1:]:
            if subprocess.run(["dpkg", "--compare-versions", one, "gt", newest], check=False).returncode == 0:
                newest = one
        return newest

    def unpack(self, source, version, folder):
        """Downloads the package, checks it against its signed list, and unpacks it as `folder`, with Debian's patches."""
        if os.path.isdir(folder):
            return
        work = folder + ".part"
        shutil.rmtree(work, ignore_errors=True)
        os.makedirs(work)
        run(["apt-get", *self.options, "-q", "--only-source", "--download-only", "source", f"{source}={version}"], cwd=work)
        dsc = [name for name in os.listdir(work) if name.endswith(".dsc")]
        run(["dpkg-source", "--no-check", "-x", os.path.join(work, dsc[0]), os.path.join(work, "tree")])
        os.replace(os.path.join(work, "tree"), folder)
        shutil.rmtree(work, ignore_errors=True)


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
