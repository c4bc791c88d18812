"""The container image: an archive that `podman load`, `docker load` and `skopeo copy oci-archive:` read, with no registry asked. For tools/packages.

packaging/container/Containerfile builds an image on a distribution's; this one has no shell and no package manager, because the daemon needs none: the
libraries that the program names, with their licences and the versions of their packages, then the files of the packages numapilot and numapilot-daemon that a
container needs. What it runs is what the Containerfile says.

Formats: OCI image layout and image specification 1.1 (github.com/opencontainers/image-spec); manifest.json beside it, as `docker save` writes it.
"""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import subprocess
import tarfile
import time

from packing import Entry, Failed, bytes_of

# Names of processors in images, by Debian's.
PLATFORMS = {"amd64": "amd64", "arm64": "arm64", "riscv64": "riscv64", "ppc64el": "ppc64le"}
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
# Folders that must be there, and who may write into them.
FOLDERS = {"tmp": 0o1777, "run": 0o755, "proc": 0o555, "sys": 0o555, "dev": 0o755, "var/lib/numapilot": 0o700}


def said(command):
    """What a command of binutils or dpkg prints, in English; nothing where it fails."""
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | {"LC_ALL": "C"}).stdout


def interpreter(program):
    """The loader that a program names (PT_INTERP), without the first slash."""
    found = re.search(r"Requesting program interpreter: /(\S+)\]", said(["readelf", "--wide", "--program-headers", program]))
    if found is None:
        raise Failed(f"{program} names no loader")
    return found[1]


def owner_of(path):
    """Debian's package that a file of this machine is of: (name, version, its copyright file). Raises Failed where there is none: its licence is not known."""
    # Where /lib is a link to /usr/lib, packages name files by either.
    other = str(path).removeprefix("/usr") if str(path).startswith("/usr/lib") else f"/usr{path}"
    for name in [str(path), other]:
        listed = said(["dpkg-query", "--search", name])
        if ": " in listed:
            package = listed.partition(": ")[0].partition(",")[0]
            source = said(["dpkg-query", "--show", "--showformat", "${source:Package} ${source:Version}", package])
            text = pathlib.Path("/usr/share/doc", package.partition(":")[0], "copyright")
            if not source or not text.is_file():
                raise Failed(f"{text} is missing: an image with {path} needs its licence")
            return package.partition(":")[0], source, text.resolve()
    raise Failed(f"no package of this machine has {path}, so its licence is not known: an image needs that")


def system_entries(needed, loader, triplet, folders):
    """The first layer: libraries by their names, and the loader, from the first of `folders` that has them; their licences, and which sources they are of."""
    entries, sources = {}, set()
    for name, target in sorted({name: f"lib/{triplet}/{name}" for name in needed}.items()) + [(pathlib.PurePosixPath(loader).name, loader)]:
        path = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if path is None:
            raise Failed(f"there is no {name} in {' or '.join(map(str, folders))}")
        package, source, text = owner_of(path.resolve())
        entries[target] = Entry(path=path.resolve(), mode=0o755)
        entries[f"usr/share/doc/{package}/copyright"] = Entry(path=text)
        sources.add(source)
    heading = "Libraries of this image that are not numapilot's, as Debian's source packages and versions; snapshot.debian.org keeps the sources of each:\n"
    entries["usr/share/doc/numapilot/SYSTEM.txt"] = Entry(data=(heading + "".join(f"  {source}\n" for source in sorted(sources))).encode())
    return entries


def layer(entries, folders, epoch):
    """A layer's tar: folders before what is in them, owned by root, all of one time. `folders`: modes of those that must be there."""
    made = io.BytesIO()
    parents = {parent.as_posix() for target in [*entries, *(f"{folder}/x" for folder in folders)] for parent in pathlib.PurePosixPath(target).parents} - {"."}
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for target in sorted(parents | set(entries)):
            member, entry = tarfile.TarInfo(target), entries.get(target)
            member.mtime = epoch
            if entry is None:
                member.type, member.mode = tarfile.DIRTYPE, folders.get(target, 0o755)
                archive.addfile(member)
                continue
            data = bytes_of(entry)
            member.mode, member.size = entry.mode, len(data)
            archive.addfile(member, io.BytesIO(data))
    return made.getvalue()


def started(containerfile):
    """What a container of the Containerfile starts: its last ENTRYPOINT, CMD and USER."""
    found = {word: re.findall(rf"^{word} (.*)$", containerfile, re.MULTILINE) for word in ["ENTRYPOINT", "CMD", "USER"]}
    if not all(found.values()):
        raise Failed("packaging/container/Containerfile has no ENTRYPOINT, CMD or USER")
    return {"Entrypoint": json.loads(found["ENTRYPOINT"][-1]), "Cmd": json.loads(found["CMD"][-1]), "User": found["USER"][-1]}


def configuration(release, starts, layers, described):
    """The image's configuration. `layers`: their tars; `described`: what each has."""
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(release.epoch))
    labels = {"title": "numapilot", "version": release.package_version, "source": release.homepage, "licenses": "MIT OR Apache-2.0"}
    starts = starts | {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                       "Labels": {f"org.opencontainers.image.{name}": value for name, value in labels.items()}}
    history = [{"created": date, "created_by": text} for text in described]
    return {"created": date, "architecture": PLATFORMS[release.architecture], "os": "linux", "config": starts,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]}, "history": history}


def layout(config, layers, name):
    """The archive's files. `name`: what the image is called where it is loaded."""
    files, described = {}, []

    def blob(data, kind):
        hashed = hashlib.sha256(data).hexdigest()
        files[f"blobs/sha256/{hashed}"] = data
        return {"mediaType": kind, "digest": f"sha256:{hashed}", "size": len(data)}

    def text(value):
        return json.dumps(value, sort_keys=True).encode()

    described = [blob(gzip.compress(data, 9, mtime=0), LAYER) for data in layers]
    of_config = blob(text(config), CONFIG)
    manifest = blob(text({"schemaVersion": 2, "mediaType": MANIFEST, "config": of_config, "layers": described}), MANIFEST)
    manifest |= {"platform": {"architecture": config["architecture"], "os": "linux"},
                 "annotations": {"org.opencontainers.image.ref.name": name.partition(":")[2], "io.containerd.image.name": f"docker.io/library/{name}"}}
    files["index.json"] = text({"schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest]})
    files["oci-layout"] = text({"imageLayoutVersion": "1.0.0"})

    def path(one):
        return "blobs/sha256/" + one["digest"].removeprefix("sha256:")

    files["manifest.json"] = text([{"Config": path(of_config), "RepoTags": [name], "Layers": [path(one) for one in described]}])
    return {target: Entry(data=data) for target, data in files.items()}


def make(tree, own, program, needed, folders, release, file):
    """Writes the image; its file. `own`: entries of numapilot's files, `program` the path of the program, `needed` the libraries that it and what it carries
    name, `folders` where this machine has them for the program's processor."""
    loader = interpreter(program)
    starts = started((tree / "packaging/container/Containerfile").read_text(encoding="utf-8"))
    missing = [path for path in [starts["Entrypoint"][0], starts["Cmd"][-1]] if path.removeprefix("/") not in own]
    if missing:
        raise Failed(f"the image lacks {missing[0]}, which packaging/container/Containerfile names")
    names = {name for name in needed if name != pathlib.PurePosixPath(loader).name}
    system = layer(system_entries(names, loader, release.triplet, folders), FOLDERS, release.epoch)
    layers = [system, layer(own, {}, release.epoch)]
    config = configuration(release, starts, layers, ["libraries of the system", "numapilot"])
    file.write_bytes(layer(layout(config, layers, f"numapilot:{release.version}"), {}, release.epoch))
    return file
