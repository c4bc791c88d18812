"""Debian's packages, unpacked beside the system: nothing is installed, and no service is started.

A package that the system has is used as it is. Needs no rights.
"""

import glob
import os
import re
import sys
import sysconfig

import fetch
import files

NAME = re.compile(r"^Inst (\S+)", re.MULTILINE)


def chosen(wanted):
    """Of each `a|b` the first that is installed or that the archive has."""
    names = []
    for alternatives in wanted:
        options = alternatives.split("|")
        here = [name for name in options if not fetch.missing([name])]
        there = [name for name in options if "Candidate: (none)" not in (said := fetch.run(["apt-cache", "policy", name])) and "Candidate:" in said]
        if not here and not there:
            raise fetch.Failed(f"the system's archive has no {' or '.join(options)}; run `apt-get update` as root first")
        names.append((here or there)[0])
    return names


def unpack(wanted, root):
    """Unpacks what is not installed, with what it needs, below `root`."""
    absent = fetch.missing(chosen(wanted))
    if not absent:
        return
    planned = NAME.findall(fetch.run(["apt-get", "install", "--simulate", "--no-install-recommends", *absent]))
    debs = os.path.join(root, "debs")
    os.makedirs(debs, exist_ok=True)
    for name in planned:
        mark = os.path.join(debs, name + ".unpacked")
        if os.path.exists(mark):
            continue
        # No user of apt's own: it might not enter the folder.
        fetch.run(["apt-get", "-o", "APT::Sandbox::User=", "download", name], cwd=debs)
        for deb in glob.glob(os.path.join(debs, glob.escape(name) + "_*.deb")):
            fetch.run(["dpkg-deb", "-x", deb, root])
            os.remove(deb)
        files.write(mark, "")


def python(wanted, root):
    """A Python with packages of the package index; the system's own where none are wanted."""
    if not wanted:
        return ""
    folder = os.path.join(root, "python-" + "-".join(wanted))
    if not os.path.exists(os.path.join(folder, "ready")):
        fetch.run([sys.executable, "-m", "venv", "--clear", folder])
        fetch.run([os.path.join(folder, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted])
        files.write(os.path.join(folder, "ready"), "")
    return os.path.join(folder, "bin")


def environment(root, first=""):
    """Variables under which programs find what was unpacked, before what the system has."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    libraries = [path for part in ("", "blas", "lapack") if os.path.isdir(path := os.path.join(root, "usr", "lib", multiarch, part))]
    programs = [first, *(os.path.join(root, "usr", part) for part in ("bin", "sbin"))]
    for base in (root, "/"):
        for pattern in ("usr/lib/postgresql/*/bin", "usr/lib/go-*/bin", "usr/lib/jvm/*/bin"):
            programs += sorted(glob.glob(os.path.join(base, pattern)))
    found = {
        "PATH": ":".join([*(path for path in programs if os.path.isdir(path)), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]),
        "LC_ALL": "C.UTF-8",
        "ROOT": root,
    }
    if libraries:
        found["LD_LIBRARY_PATH"] = ":".join(libraries)
    if os.path.isdir(modules := os.path.join(root, "usr", "lib", "python3", "dist-packages")) and not first:
        found["PYTHONPATH"] = modules
    if os.path.isdir(lua := os.path.join(root, "usr", "share", "sysbench")):
        found["LUA_PATH"] = f"{lua}/?.lua;;"
    return found
