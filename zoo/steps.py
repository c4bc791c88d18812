"""One step: a command with a time limit, its output in files, and what it took. The only file here that starts processes."""

import dataclasses
import os
import resource
import signal
import subprocess
import time


@dataclasses.dataclass(frozen=True)
class Took:
    """How a command ended and what it took, with all that it started and waited for."""

    # Exit status; negative: the signal. None: it ran into its limit, or could not be started.
    status: int | None
    wall_s: float
    # User and system time.
    cpu_s: float
    # Peak resident memory of its largest process.
    rss_kib: int
    # Why there is no status.
    problem: str = ""


def quietly(nice):
    """What a new process does first: no core files of programs that crash; its priority."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(nice)


def start(command, cwd, environment, stdout, stderr, nice=0):
    """A process in a session of its own, so that all of it can be ended."""
    with open(stdout, "wb") as out, open(stderr, "wb") as err:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            preexec_fn=lambda: quietly(nice),
        )


def end(process):
    """Kills the session that `start` made: its leader and the other processes of its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def wait(process, limit_s, begun):
    """Waits for the process itself, never beyond the limit."""
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        wall = time.monotonic() - begun
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            end(process)
            return Took(process.returncode, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
        if wall > limit_s:
            end(process)
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = -signal.SIGKILL
            return Took(None, wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss, f"still running after {limit_s:.0f} s")
        time.sleep(0.005 if wall < 2 else 0.05)


def run(command, cwd, environment, stdout, stderr, limit_s, nice=0):
    """Runs it to its end."""
    begun = time.monotonic()
    try:
        process = start(command, cwd, environment, stdout, stderr, nice)
    except OSError as error:
        return Took(None, 0.0, 0.0, 0, f"cannot be started: {error}")
    return wait(process, limit_s, begun)


def run_with_client(command, script, cwd, environment, stdout, stderr, limit_s):
    """Runs a server and, beside it, the script that asks and ends it; the script's output goes to `client` in the folder. The time taken is the server's."""
    begun = time.monotonic()
    try:
        server = start(command, cwd, environment, stdout, stderr)
    except OSError as error:
        return Took(None, 0.0, 0.0, 0, f"cannot be started: {error}")
    client = start(["sh", "-ec", script], cwd, environment, os.path.join(cwd, "client"), os.path.join(cwd, "client.err"))
    asked = wait(client, limit_s, begun)
    took = wait(server, limit_s if asked.status == 0 else time.monotonic() - begun + 10, begun)
    if asked.status != 0:
        said = tail(os.path.join(cwd, "client.err"))
        return dataclasses.replace(took, status=None, problem=f"the client failed ({asked.problem or asked.status}): {said}")
    return took


def tail(path, characters=600):
    """The end of a file of output, in one line."""
    try:
        with open(path, "rb") as file:
            text = file.read()[-8 * characters :].decode("utf-8", "replace")
    except OSError:
        return ""
    return " | ".join(line.strip() for line in text.splitlines() if line.strip())[-characters:]
