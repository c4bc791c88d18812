"""What servers/servers.toml says, checked."""

import dataclasses
import tomllib


class Wrong(Exception):
    """What is wrong in the manifest, and where."""


@dataclasses.dataclass(frozen=True)
class Server:
    """One server or program. Commands see PORT, DIR (its own folder), ROOT (where packages are unpacked), PROGRAMS, REQUESTS, AS and USER."""

    name: str
    # A shell command that prints the version in its first line.
    version: str
    # What the load is, for the table.
    load: str
    # Size of the load; under `emulate`. 0: not tried there, because the runtime is known not to run in it, or for hours.
    requests: int
    emulated: int
    # The server in the foreground, split into words as a shell would; not run by a shell.
    run: str
    # Debian packages; `a|b`: the first that the system's archive has.
    packages: tuple = ()
    # Packages of the Python package index.
    python: tuple = ()
    # Who runs it where root may not; $AS changes to that user, and is empty without root.
    user: str = ""
    # Shell scripts: before the first run; whether it answers; the load; its end. Without `ask` it is a program that ends by itself.
    prepare: str = ""
    ready: str = ""
    ask: str = ""
    stop: str = ""
    # Longest run in seconds.
    limit: int = 600


def load(path):
    """Servers by name, in the manifest's order."""
    with open(path, "rb") as file:
        try:
            read = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            raise Wrong(f"{path}: {error}") from error
    servers = {}
    for number, entry in enumerate(read.get("server", []), 1):
        where = f"{path}: server {number} ({entry.get('name', 'without a name')})"
        entry = {key: tuple(value) if isinstance(value, list) else value for key, value in entry.items()}
        try:
            server = Server(**entry)
        except TypeError as error:
            raise Wrong(f"{where}: {error}") from error
        if server.name in servers:
            raise Wrong(f"{where}: the name is there already")
        if bool(server.ask) != bool(server.stop) or bool(server.ask) != bool(server.ready):
            raise Wrong(f"{where}: `ready`, `ask` and `stop` belong together")
        servers[server.name] = server
    return servers
