"""Another processor on this machine: programs for it are made by Debian's cross compilers and run in QEMU's user mode, those that they start themselves, too.

The kernel gives a program of another processor to the emulator that is registered with it for such programs (binfmt_misc). Debian's package qemu-user-static
registers one where it is installed on a machine; in a container it cannot, so root registers it here for as long as the tests run.
"""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

BINFMT = pathlib.Path("/proc/sys/fs/binfmt_misc")
# How ELF files of 64-bit Arm begin (e_ident, e_type, e_machine), and which bits of that count: any ABI version, executables and shared objects.
AARCH64_MAGIC = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00"
AARCH64_MASK = b"\xff" * 7 + b"\x00" + b"\xff" * 8 + b"\xfe\xff\xff\xff"
# Names that tests call compilers by, and the cross compiler's for each. One that is not installed stays away, and tests that want it say that they did not run.
TOOLS = {"cc": "gcc", "gcc": "gcc", "c++": "g++", "g++": "g++", "gfortran": "gfortran", "ar": "ar", "ld": "ld", "nm": "nm", "objcopy": "objcopy",
         "objdump": "objdump", "readelf": "readelf", "strip": "strip"}

# What this program has registered, and mounted, and not taken back.
REGISTERED, MOUNTED = [], []


class Processor:
    """A processor that programs can be built for and run as."""

    def __init__(self, name):
        """`name`: as targets begin."""
        self.name = name
        self.target = f"{name}-unknown-linux-gnu"
        self.prefix = f"{name}-linux-gnu"
        self.root = pathlib.Path("/usr", self.prefix)
        self.emulator = shutil.which(f"qemu-{name}-static") or shutil.which(f"qemu-{name}")

    def missing(self):
        """What is not installed, as (command, Debian's package)."""
        needs = [(f"{self.prefix}-{tool}", f"{tool}-{self.prefix}") for tool in ("gcc", "g++")]
        absent = [(command, package) for command, package in needs if not shutil.which(command)]
        return absent if self.emulator else [*absent, (f"qemu-{self.name}-static", "qemu-user-static")]

    def build_environment(self):
        """Variables by which cargo, and build scripts that compile C, use the cross compilers."""
        shell, name = self.target.upper().replace("-", "_"), self.target.replace("-", "_")
        return {f"CARGO_TARGET_{shell}_LINKER": f"{self.prefix}-gcc", f"CC_{name}": f"{self.prefix}-gcc", f"CXX_{name}": f"{self.prefix}-g++",
                f"AR_{name}": f"{self.prefix}-ar"}

    @contextlib.contextmanager
    def ready(self):
        """Programs of this processor run while this lasts: yields variables for them. Ends the program with the remedy where that cannot be."""
        with contextlib.ExitStack() as until_end:
            until_end.enter_context(mounted())
            if not is_registered(AARCH64_MAGIC):
                until_end.enter_context(registered(self.name, self.emulator))
            tools = pathlib.Path(until_end.enter_context(tempfile.TemporaryDirectory(prefix="numapilot-tools.")))
            tools.chmod(0o755)
            for name, tool in TOOLS.items():
                if path := shutil.which(f"{self.prefix}-{tool}"):
                    (tools / name).symlink_to(path)
            for name in ("clang", "clang++"):
                if path := shutil.which(name):
                    (tools / name).write_text(f'#!/bin/sh\nexec {path} --target={self.prefix} "$@"\n')
                    (tools / name).chmod(0o755)
            yield {"PATH": f"{tools}:{os.environ['PATH']}", "QEMU_LD_PREFIX": str(self.root)}


def is_registered(magic):
    """Whether the kernel knows an emulator for files that begin like this."""
    return any(f"magic {magic.hex()}" in path.read_text() for path in BINFMT.glob("*") if path.name not in ("register", "status"))


@contextlib.contextmanager
def mounted():
    """The kernel's list of such emulators is there while this lasts, where root may mount it: systemd mounts it, containers and minimal systems have it not."""
    if (BINFMT / "register").exists():
        yield
        return
    mount = subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", BINFMT], capture_output=True, check=False)
    if mount.returncode == 0:
        print(f"mounted {BINFMT} while the tests run", flush=True)
        MOUNTED.append(BINFMT)
    try:
        yield
    finally:
        unregister()


@contextlib.contextmanager
def registered(name, emulator):
    """The emulator is registered while this lasts. F: the kernel keeps it open, so that programs in another root find it; P: they see their own argv[0]."""
    entry = BINFMT / f"numapilot-{name}"
    line = b":%s:M::%s:%s:%s:PF" % (entry.name.encode(), escaped(AARCH64_MAGIC), escaped(AARCH64_MASK), emulator.encode())
    try:
        (BINFMT / "register").write_bytes(line)
    except OSError as error:
        sys.exit(f"{BINFMT / 'register'}: {error.strerror}: programs for {name} cannot be started here. Remedy: run this as root "
                 f"(in a container, a privileged one), or on a machine with systemd install qemu-user-static")
    REGISTERED.append(entry)
    try:
        yield
    finally:
        unregister()


def unregister():
    """Takes back what this program registered and mounted: for a program that ends in another way than by returning."""
    while REGISTERED:
        with contextlib.suppress(OSError):
            REGISTERED.pop().write_bytes(b"-1")
    while MOUNTED:
        subprocess.run(["umount", MOUNTED.pop()], capture_output=True, check=False)


def escaped(magic):
    """Bytes as binfmt_misc takes them: a zero byte or a colon would end the field."""
    return b"".join(b"\\x%02x" % byte for byte in magic)


AARCH64 = Processor("aarch64")
