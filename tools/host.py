"""What a table says of the machine that it was measured on."""

import datetime
import os
import platform


def first(path, key):
    """The value of the first line `key: value` of a file of /proc."""
    try:
        with open(path, encoding="utf-8") as file:
            return next((line.split(":", 1)[1].strip() for line in file if line.startswith(key)), "unknown")
    except OSError:
        return "unknown"


def machine():
    """Date and machine, without names of hosts or users."""
    try:
        system = platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        system = "unknown"
    memory = first("/proc/meminfo", "MemTotal").split()[0]
    load = os.getloadavg()[2]
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": first("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count(),
        "memory_gib": round(int(memory) / 2**20) if memory.isdigit() else "unknown",
        "system": system,
        "kernel": platform.release(),
        "load": f"load over 15 minutes {load:.1f}, so wall times mean {'nothing' if load > os.cpu_count() else 'something'}; ratios are of CPU time.",
    }
