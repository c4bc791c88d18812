"""What packages for another processor than this machine's are made with: Debian's cross tools, and QEMU for the programs. For tools/packages.

The manual pages and completions in a package are what its own program prints, so that they fit it; a program for another processor runs in `qemu-user` for
that, with the libraries of Debian's cross compiler.
"""

import dataclasses
import pathlib
import shutil
import sys

import elf
from packing import Failed

# QEMU's names of processors that triplets name in another way.
QEMU = {"powerpc64le": "ppc64le"}


@dataclasses.dataclass(frozen=True)
class Toolchain:
    """How files for one processor are handled on this machine."""

    prefix: str  # of binutils' programs
    runner: tuple  # what stands in front of a program to run it; nothing for this machine's own
    libraries: tuple  # folders of the processor's shared libraries

    def tool(self, name):
        """A program of binutils that knows the processor."""
        return self.prefix + name


def is_of_this_machine(architecture):
    """Whether programs for Debian's architecture run here as they are: whether this Python is one."""
    own, _ = elf.MACHINES.get(elf.read(pathlib.Path(sys.executable).resolve()).machine, ("", ""))
    return architecture == own


def toolchain(architecture, triplet):
    """The `Toolchain` for Debian's architecture, whose compilers and folders are named by `triplet`. Raises Failed where this machine lacks a part of it."""
    if is_of_this_machine(architecture):
        return Toolchain("", (), (pathlib.Path("/lib", triplet), pathlib.Path("/usr/lib", triplet), pathlib.Path("/lib"), pathlib.Path("/lib64")))
    processor = triplet.partition("-")[0]
    emulator, root = f"qemu-{QEMU.get(processor, processor)}", pathlib.Path("/usr", triplet)
    missing = [name for name in [f"{triplet}-strip", f"{triplet}-objcopy", emulator] if not shutil.which(name)]
    if not (root / "lib").is_dir():
        missing.append(str(root / "lib"))
    if missing:
        raise Failed(f"packages for {architecture} need {', '.join(missing)}: run tools/setup packages {processor}-unknown-linux-gnu")
    return Toolchain(f"{triplet}-", (emulator, "-L", str(root)), (root / "lib",))
