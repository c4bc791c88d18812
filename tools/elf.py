"""What packages need to know of ELF files (executables and shared objects of 64 bits, little-endian): libraries, symbol versions, build id.

Layout: System V ABI, chapters 4 and 5; `.gnu.version_d`, `.gnu.version_r`: Linux Standard Base, "Symbol Versioning"; `.note.gnu.build-id`: GNU ld's manual.
"""

import dataclasses
import mmap
import struct

EXECUTABLE, SHARED = 2, 3
SHT_DYNAMIC, SHT_NOTE, SHT_GNU_VERDEF, SHT_GNU_VERNEED = 6, 7, 0x6FFFFFFD, 0x6FFFFFFE
DT_NULL, DT_NEEDED, DT_SONAME = 0, 1, 14
NT_GNU_BUILD_ID = 3
# Of an entry that names the file itself, and no version of symbols.
VER_FLG_BASE = 1
# Of `e_machine`: Debian's name of the architecture, and of its folder of libraries.
MACHINES = {
    21: ("ppc64el", "powerpc64le-linux-gnu"),
    62: ("amd64", "x86_64-linux-gnu"),
    183: ("arm64", "aarch64-linux-gnu"),
    243: ("riscv64", "riscv64-linux-gnu"),
}


# The beginning of such a file: 64 bits, little-endian, version 1.
BEGINNING = b"\x7fELF\x02\x01\x01"
# More than the largest library that a program of ours carries as bytes.
EMBEDDED_BYTES = 16 << 20


class NotElf(ValueError):
    """The file is no such executable or shared object."""


@dataclasses.dataclass
class Elf:
    """One executable or shared object."""

    machine: int
    needed: list  # names of libraries, in the file's order
    versions: dict  # library: the set of symbol versions that it must have
    build_id: str = ""  # hexadecimal digits; empty where there is none
    soname: str = ""
    defines: list = dataclasses.field(default_factory=list)  # symbol versions that others may ask it for, in the file's order


def is_elf(path):
    """Whether the file begins as an ELF file does."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def read(path):
    """The file as `Elf`. Raises NotElf with the path."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x7fELF":
            raise NotElf(f"{path}: not an ELF file")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            try:
                return parsed(data)
            except (struct.error, IndexError, UnicodeDecodeError) as error:
                raise NotElf(f"{path}: damaged ({error})") from None
            except NotElf as error:
                raise NotElf(f"{path}: {error}") from None


def embedded(path):
    """Executables and shared objects that lie inside of a file as bytes, each as `Elf`. Object files are none."""
    found = []
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(BEGINNING, 1)
        while start >= 0:
            try:
                found.append(parsed(data[start : start + EMBEDDED_BYTES]))
            except (NotElf, struct.error, IndexError, UnicodeDecodeError):
                pass
            start = data.find(BEGINNING, start + 1)
    return found


def parsed(data):
    """The same of the file's bytes."""
    if data[4:6] != b"\x02\x01":
        raise NotElf("not of 64 bits, little-endian")
    kind, machine = struct.unpack_from("<HH", data, 16)
    if kind not in (EXECUTABLE, SHARED):
        raise NotElf("neither an executable nor a shared object")
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    # sh_name, sh_type, sh_flags, sh_addr, sh_offset, sh_size, sh_link, sh_info, sh_addralign, sh_entsize
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, table + size * index) for index in range(count)]
    found = Elf(machine, [], {})
    for section in sections:
        if section[1] == SHT_DYNAMIC:
            _dynamic(data, section, sections[section[6]], found)
        elif section[1] == SHT_GNU_VERNEED:
            _versions(data, section, sections[section[6]], found)
        elif section[1] == SHT_GNU_VERDEF:
            _definitions(data, section, sections[section[6]], found)
        elif section[1] == SHT_NOTE:
            found.build_id = found.build_id or _build_id(data[section[4] : section[4] + section[5]])
    return found


def _text(data, strings, offset):
    start = strings[4] + offset
    return bytes(data[start : data.find(b"\0", start)]).decode()


def _dynamic(data, section, strings, found):
    for offset in range(section[4], section[4] + section[5], 16):
        tag, value = struct.unpack_from("<QQ", data, offset)
        if tag == DT_NULL:
            return
        if tag == DT_NEEDED:
            found.needed.append(_text(data, strings, value))
        elif tag == DT_SONAME:
            found.soname = _text(data, strings, value)


def _versions(data, section, strings, found):
    offset = section[4]
    # sh_info: how many libraries.
    for _ in range(section[7]):
        _, count, file, first, following = struct.unpack_from("<HHIII", data, offset)
        versions = found.versions.setdefault(_text(data, strings, file), set())
        entry = offset + first
        for _ in range(count):
            _, _, _, name, after = struct.unpack_from("<IHHII", data, entry)
            versions.add(_text(data, strings, name))
            entry += after
        offset += following


def _definitions(data, section, strings, found):
    offset = section[4]
    # sh_info: how many versions.
    for _ in range(section[7]):
        _, flags, _, _, _, names, following = struct.unpack_from("<HHHHIII", data, offset)
        if not flags & VER_FLG_BASE:
            # The first name is the version's own; those behind it are its parents'.
            found.defines.append(_text(data, strings, struct.unpack_from("<I", data, offset + names)[0]))
        offset += following


def _build_id(notes):
    """The build id in a section of notes; empty where it has none."""
    offset = 0
    while offset + 12 <= len(notes):
        name_bytes, bytes_of_it, kind = struct.unpack_from("<III", notes, offset)
        name = notes[offset + 12 : offset + 12 + name_bytes]
        start = offset + 12 + (name_bytes + 3) // 4 * 4
        if kind == NT_GNU_BUILD_ID and name == b"GNU\0":
            return bytes(notes[start : start + bytes_of_it]).hex()
        offset = start + (bytes_of_it + 3) // 4 * 4
    return ""
