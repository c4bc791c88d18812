"""What programs that are built depend on in a C library, as text, and what a change of it does to them. For tools/abi.

The text has one fact per line and is meant to be read: versions and signatures of symbols; sizes, offsets and types of structs; values of enumerators and of
constants. The rules are those of docs/internals/compatibility.md.
"""

import dataclasses
import re

HEAD = """\
# What programs that are built depend on in {name}. `make abi` compares the library with it; `make abi ABI=--write` renews it, with a release.
# How to read it, and what a change needs: docs/internals/compatibility.md. Bytes are those of 64-bit Linux.
"""
# Fields that later versions may use.
RESERVED = "reserved"
# The first field of structs that may grow: programs tell the library how much of it they know.
GROWS_BY = "type_size"
# It changes with every version.
VERSION_CONSTANT = "NUMAPILOT_API_VERSION"


class Malformed(ValueError):
    """The text is no such interface."""


@dataclasses.dataclass(frozen=True)
class Member:
    """A field of a struct; offset and size in bytes."""

    offset: int
    size: int
    type: str

    @property
    def end(self):
        return self.offset + self.size


@dataclasses.dataclass(frozen=True)
class Struct:
    """A struct that crosses the interface; size and alignment in bytes."""

    size: int
    alignment: int
    members: dict  # Member by its name, in the header's order

    @property
    def may_grow(self):
        """Whether programs tell the library the size that they know."""
        return next(iter(self.members), "") == GROWS_BY


@dataclasses.dataclass(frozen=True)
class Interface:
    """All of it."""

    version: str  # of the program, as Cargo.toml has it
    soname: str
    symbols: dict  # (version of the symbol, signature) by name
    structs: dict  # Struct by name
    enums: dict  # {enumerator: value} by the name of the enum
    constants: dict  # value by name


@dataclasses.dataclass(frozen=True)
class Change:
    """A difference between two interfaces."""

    # "breaks": programs that were built with the earlier one fail or misread. "fault": no version makes it right. "new": earlier programs do not see it.
    kind: str
    text: str


def text_of(interface):
    """The interface as a text, which `parsed` reads."""
    head = HEAD.format(name=interface.soname.partition(".so")[0]).rstrip("\n")
    lines = [head, f"version {interface.version}", f"soname {interface.soname}", ""]
    lines += [f"symbol {node} {name}: {signature}" for name, (node, signature) in sorted(interface.symbols.items(), key=lambda one: (one[1][0], one[0]))]
    for name, struct in sorted(interface.structs.items()):
        lines += ["", f"struct {name}: {struct.size} bytes, alignment {struct.alignment}"]
        lines += [f"  {member.offset:4} {member.size:3}  {field}: {member.type}" for field, member in struct.members.items()]
    for name, values in sorted(interface.enums.items()):
        lines += ["", f"enum {name}"]
        lines += [f"  {enumerator} = {value}" for enumerator, value in values.items()]
    lines += ["", *(f"constant {name} = {value}" for name, value in sorted(interface.constants.items()))]
    return "\n".join(lines) + "\n"


def parsed(text):
    """The interface that `text_of` wrote. Raises Malformed with the line."""
    found, block = Interface("", "", {}, {}, {}, {}), {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        if match := re.fullmatch(r" +(\d+) +(\d+)  (\w+): (.+)", line):
            block[match[3]] = Member(int(match[1]), int(match[2]), match[4])
        elif match := re.fullmatch(r"  (\w+) = (-?\d+)", line):
            block[match[1]] = int(match[2])
        elif match := re.fullmatch(r"struct (\w+): (\d+) bytes, alignment (\d+)", line):
            block = {}
            found.structs[match[1]] = Struct(int(match[2]), int(match[3]), block)
        elif match := re.fullmatch(r"enum (\w+)", line):
            block = found.enums.setdefault(match[1], {})
        elif match := re.fullmatch(r"constant (\w+) = (-?\d+)", line):
            found.constants[match[1]] = int(match[2])
        elif match := re.fullmatch(r"symbol (\S+) (\w+): (.+)", line):
            found.symbols[match[2]] = (match[1], match[3])
        elif match := re.fullmatch(r"(version|soname) (\S+)", line):
            found = dataclasses.replace(found, **{match[1]: match[2]})
        else:
            raise Malformed(f"line {number} is not understood: {line}")
    if not found.version or not found.soname:
        raise Malformed("it names no version, or no soname")
    return found


def of_symbols(old, new):
    """Changes of what the linker sees."""
    nodes = {node for node, _ in old.symbols.values()}
    for name, (node, signature) in old.symbols.items():
        if name not in new.symbols:
            yield Change("breaks", f"{name} is gone")
            continue
        now_node, now_signature = new.symbols[name]
        if now_node != node:
            yield Change("breaks", f"{name} is of version {now_node}, was of {node}: programs ask for the version that they were linked with")
        if now_signature != signature:
            yield Change("breaks", f"{name} is {now_signature}, was {signature}")
    for name, (node, _) in new.symbols.items():
        if name not in old.symbols:
            yield Change("new", f"{name}, of version {node}")
            if node in nodes:
                yield Change("fault", f"{name} is in {node}, which was released without it: give it a version of its own in numapilot.map")


def of_struct(name, old, new):
    """Changes of one struct."""
    if new.alignment != old.alignment:
        yield Change("breaks", f"{name}: alignment {new.alignment}, was {old.alignment}")
    if new.size < old.size or new.size > old.size and not old.may_grow:
        grows = "" if new.size < old.size else f", and it has no {GROWS_BY} by which programs say what they know"
        yield Change("breaks", f"{name}: {new.size} bytes, was {old.size}{grows}")
    for field, was in old.members.items():
        now = new.members.get(field)
        if field.startswith(RESERVED):
            continue
        if now is None:
            yield Change("breaks", f"{name}: {field} is gone")
        elif now != was:
            yield Change("breaks", f"{name}: {field} is {now.type} at byte {now.offset}, was {was.type} at byte {was.offset}")
    spare = [was for field, was in old.members.items() if field.startswith(RESERVED)]
    for field, now in new.members.items():
        if field in old.members or field.startswith(RESERVED):
            continue
        if now.offset >= old.size or any(was.offset <= now.offset and now.end <= was.end for was in spare):
            yield Change("new", f"{name}: {field}, at byte {now.offset}")
        else:
            yield Change("breaks", f"{name}: {field} is at byte {now.offset}, inside of the {old.size} bytes that programs know, and not in reserved ones")


def of_values(what, old, new):
    """Changes of enumerators or constants."""
    for name, value in old.items():
        if name == VERSION_CONSTANT:
            continue
        if name not in new:
            yield Change("breaks", f"{what}{name} is gone")
        elif new[name] != value:
            yield Change("breaks", f"{what}{name} is {new[name]}, was {value}")
    for name in new:
        if name not in old:
            yield Change("new", f"{what}{name}")


def changes(old, new):
    """What differs: a list of `Change`, those that break first."""
    found = [*of_symbols(old, new)]
    if new.soname != old.soname:
        found.append(Change("breaks", f"SONAME {new.soname}, was {old.soname}: programs look for the file of that name"))
    for name, struct in old.structs.items():
        if name in new.structs:
            found += of_struct(name, struct, new.structs[name])
        else:
            found.append(Change("breaks", f"{name} is gone"))
    found += [Change("new", f"struct {name}") for name in new.structs if name not in old.structs]
    for name in sorted({*old.enums, *new.enums}):
        found += of_values(f"{name}: ", old.enums.get(name, {}), new.enums.get(name, {}))
    found += of_values("", old.constants, new.constants)
    return sorted(found, key=lambda change: ["fault", "breaks", "new"].index(change.kind))


def numbers(version):
    """Major, minor and patch of a version; a candidate (0.2.0-rc.1) counts as its release."""
    return tuple(int(part) for part in version.partition("-")[0].split("."))


def least_version(since, found):
    """The least version that may have these changes since a released one; None where any may."""
    major, minor, _ = numbers(since)
    if any(change.kind == "breaks" for change in found):
        return (major + 1, 0, 0) if major else (0, minor + 1, 0)
    return (major, minor + 1, 0) if found else None


def verdict(old, new, is_released):
    """Whether this version may be released with what changed since `old`, and why, as lines. `is_released`: whether the version of `old` was."""
    found = changes(old, new)
    if not found:
        return True, [f"the interface is that of {old.version}"]
    lines = [f"  {change.kind:6} {change.text}" for change in found]
    if not is_released:
        return False, [f"these changes are not in the baseline, which is of {old.version}:", *lines,
                       f"{old.version} is not released, so no program depends on it yet: take them over with `make abi ABI=--write`"]
    lines.insert(0, f"since {old.version}:")
    breaks = any(change.kind == "breaks" for change in found)
    least = least_version(old.version, found)
    needed = ".".join(map(str, least))
    if breaks:
        rule = "a new major version" if numbers(old.version)[0] else "a new minor version (before 1.0; afterwards a major one)"
        lines.append(f"programs that were built with {old.version} break: this needs {rule}, {needed} or later, and another SONAME than {old.soname}")
    else:
        lines.append(f"programs that were built with {old.version} go on working: this needs a new minor version, {needed} or later, and no major one")
    wrong = [change.text for change in found if change.kind == "fault"]
    if numbers(new.version) < least:
        wrong.append(f"Cargo.toml has version {new.version}")
    if breaks and new.soname == old.soname:
        wrong.append(f"the library still has SONAME {new.soname} (its Makefile, packaging/packages.toml, tools)")
    lines += [f"NOT ENOUGH: {text}" for text in wrong]
    return not wrong, lines
