"""Another revision of the project, built in a git worktree of its own beneath the build folder, and removed again.

Everything lies in BUILD/compare: `tree` (the worktree), `target` (cargo's), `programs` (what is recorded, compiled by that revision's wrapper). A lock
keeps two comparisons apart; what one left that was killed is removed by the next.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys

from benchmarks.base import ROOT, TARGET, end_group

INSTRUMENTED = {"bytes", "slowdown", "emulate"}
QUERIES = {"query", "fleet"}
GIB = 1 << 30
# The signals that ask this process to end.
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def git(*words):
    """Runs git in the project; its standard output, or None where it fails."""
    done = subprocess.run(["git", "-C", ROOT, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def name_of_this():
    """The revision of the project's own tree, with `-dirty` where files differ from it."""
    return git("describe", "--always", "--dirty", "--exclude=*") or "unknown"


def bytes_in(folder):
    """What the files of a folder take on disk; a file with several names counts once."""
    seen, total = set(), 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))
            except OSError:
                continue  # Removed meanwhile.
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_blocks * 512
    return total


class Revision:
    """`with Revision(...) as old`: built at the start, gone at the end, however that comes."""

    def __init__(self, words, build, benchmarks, say):
        self.commit = git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{words}^{{commit}}")
        if self.commit is None:
            sys.exit(f"bench: --compare {words}: no such revision of {ROOT}")
        self.name = git("describe", "--always", "--exclude=*", self.commit) or self.commit
        self.folder = os.path.join(os.path.abspath(build), "compare")
        self.tree, self.target, self.programs = (os.path.join(self.folder, name) for name in ("tree", "target", "programs"))
        self.build, self.benchmarks, self.say = os.path.abspath(build), set(benchmarks), say
        self.numapilot = os.path.join(self.target, "release", "numapilot")
        self.lock = None

    def __enter__(self):
        self.take_lock()
        try:
            self.remove()
            self.need_room()
            self.check_out()
            self.compile()
            self.say(f"{self.name} is built: {bytes_in(self.folder) / GIB:.1f} GiB in {self.folder}, until the end of this comparison")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        # Another Ctrl-C shall not stop what the first one began.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            taken = bytes_in(self.folder)
            self.remove()
            self.say(f"removed {self.folder} ({taken / GIB:.1f} GiB)")
            self.lock.close()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def take_lock(self):
        os.makedirs(self.build, exist_ok=True)
        self.lock = open(os.path.join(self.build, "compare.lock"), "w", encoding="utf-8")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"bench: another comparison runs in {self.build}: wait for its end, or name another build folder")

    def remove(self):
        """Removes the worktree and all beside it, if there is one."""
        # Twice: git's own lock on a worktree that was not complete when git was ended.
        git("worktree", "remove", "--force", "--force", self.tree)
        shutil.rmtree(self.folder, ignore_errors=True)
        if os.path.exists(self.folder):
            # A compiler that was just ended may have made a file meanwhile.
            shutil.rmtree(self.folder, ignore_errors=True)

    def need_room(self):
        """Ends with a message where the disk has less free than this tree's own release build takes, which is what the other one will need."""
        needed, free = bytes_in(os.path.join(TARGET, "release")), shutil.disk_usage(self.build).free
        self.say(f"{self.name} will need about {needed / GIB:.1f} GiB in {self.folder}; free there: {free / GIB:.1f} GiB")
        if free < needed:
            sys.exit(f"bench: {self.folder}: not enough room. Name a build folder on another disk, or free some")

    def check_out(self):
        os.makedirs(self.folder, exist_ok=True)
        self.command(["git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", self.tree, self.commit])

    def compile(self):
        self.say(f"building {self.name}")
        self.cargo("-p", "numapilot")
        if self.benchmarks & QUERIES:
            self.cargo("--manifest-path", "crates/query/Cargo.toml", "--target-dir", self.target)
        if self.benchmarks & INSTRUMENTED:
            os.makedirs(self.programs, exist_ok=True)
            os.symlink(os.path.join(self.build, "native"), os.path.join(self.programs, "native"))
            # This tree's programs: what is recorded must be the same on both sides, and only who instruments it differ.
            wrappers = [f"{name}={self.numapilot} {word}" for name, word in (("CC", "cc"), ("CXX", "c++"), ("FC", "fc"))]
            out = os.path.join(self.programs, "instrumented")
            self.command(["make", "--no-print-directory", "-C", os.path.join(ROOT, "workloads"), f"OUT={out}", *wrappers])

    def cargo(self, *words):
        environment = {**os.environ, "CARGO_TARGET_DIR": self.target}
        self.command(["cargo", "build", "--quiet", "--release", "--locked", *words], cwd=self.tree, env=environment)

    def command(self, words, **more):
        """Runs a command that must succeed; its output goes to standard error. If this process is told to end, so is all that the command started."""
        process = subprocess.Popen(words, stdout=sys.stderr, start_new_session=True, **more)
        try:
            status = process.wait()
        finally:
            if process.poll() is None:
                end_group(process)
        if status != 0:
            sys.exit(f"bench: {' '.join(words)}\nfailed with {status}: {self.name} cannot be compared")
