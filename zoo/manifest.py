"""The manifest: what each program of the zoo is, how its own build system builds it, and what it is run on. Pure: reads a file, checks it."""

import dataclasses
import re
import tomllib

NAME = re.compile(r"[a-z0-9][a-z0-9.+-]*")
# A process's command, or both of these: a server, and what asks it.
TEXTS = ("source", "languages", "threading", "system", "build", "input", "client", "filter", "note")
LISTS = ("needs", "run", "ignore")


class Wrong(Exception):
    """The manifest is wrong: says where and how."""


@dataclasses.dataclass(frozen=True)
class Program:
    """One program. Scripts are for `sh -e`; the variables that they and `run` may use are in docs/zoo.md."""

    name: str
    # Debian's source package.
    source: str
    languages: str
    threading: str
    # Of the build: make, autotools, CMake, Meson, own.
    system: str
    # Debian packages that the build or the run needs beside compilers.
    needs: tuple = ()
    # Script, run in the unpacked source, once per variant.
    build: str = ""
    # Script that makes inputs in $IN, run once with the native variant.
    input: str = ""
    # Words, run without a shell.
    run: tuple = ()
    # Script beside a server: waits for it, asks it, ends it. What it prints is the output too.
    client: str = ""
    # sed's script over what is compared: only for what differs from run to run natively.
    filter: str = ""
    # Whether the order of lines is undefined: they are sorted before they are compared.
    sorted: bool = False
    # Files below $OUT that are no output (names as for fnmatch).
    ignore: tuple = ()
    # Threads that do the work, at least.
    threads: int = 4
    # Why something is as it is, for readers of the table.
    note: str = ""
    # Whether its homes are compared with a real kernel's: it must fit the lab's guest, and need nothing beside it.
    homes: bool = False


def program(name, entry):
    """One entry, checked."""
    known = {field.name for field in dataclasses.fields(Program)} - {"name"}
    if not NAME.fullmatch(name):
        raise Wrong(f"{name}: a name is made of small letters, digits, `.`, `+` and `-`")
    unknown = sorted(set(entry) - known)
    if unknown:
        raise Wrong(f"{name}: no such key: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    for key, value in entry.items():
        fits = (
            isinstance(value, str) if key in TEXTS
            else isinstance(value, list) and all(isinstance(word, str) for word in value) if key in LISTS
            else isinstance(value, bool) if key == "homes"
            else isinstance(value, int) and value >= 1
        )
        if not fits:
            raise Wrong(f"{name}: {key}: {value!r} does not fit")
    for key in ("source", "languages", "threading", "system", "build", "run"):
        if not entry.get(key):
            raise Wrong(f"{name}: {key} is missing")
    return Program(name=name, **{key: tuple(value) if key in LISTS else value for key, value in entry.items()})


def load(path):
    """All programs by name, in the manifest's order."""
    with open(path, "rb") as file:
        try:
            entries = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise Wrong(f"{path}: {error}") from error
    try:
        return {name: program(name, entry) for name, entry in entries.items()}
    except Wrong as error:
        raise Wrong(f"{path}: {error}") from error
