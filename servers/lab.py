"""What guests of the lab need to run servers (servers/lab.sh), made on this machine: the servers' packages, small programs, a database.

Assumes Debian or Ubuntu, whose packages are unpacked into the user's cache, and a C compiler.
"""

import json
import os
import shutil
import subprocess
import tarfile

import fetch
import files
import packages

SERVERS = {"memcached": ["memcached"], "postgresql": ["postgresql-15|postgresql-16|postgresql-17"]}
CLIENTS = 4
DATABASE = "template1"
# PostgreSQL does not run as root, and the cache may lie where only root can enter: another user, with the right to enter.
NOBODY = 65534
AS_NOBODY = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --inh-caps=+dac_override --ambient-caps=+dac_override"
# One WAL file of the least size and no helpers: what the guest copies into its memory is small, and what runs there is the backends. A checkpoint in the
# middle of a run would be one of chance.
SETTINGS = """
listen_addresses = ''
fsync = off
full_page_writes = off
autovacuum = off
jit = off
shared_buffers = 32MB
min_wal_size = 2MB
checkpoint_timeout = 1d
max_connections = 20
max_parallel_workers_per_gather = 0
"""


def cache():
    """Folder of unpacked packages."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(base, "numapilot", "servers")


def unpack():
    """Downloads and unpacks what the system lacks; fetch.Failed where it cannot be had."""
    os.makedirs(cache(), exist_ok=True)
    for wanted in SERVERS.values():
        packages.unpack(wanted, cache())


def statements(rows):
    """SQL for `postgres --single`, a statement a line: a table for each client, whose rows follow from their numbers, and one for the clients' answers."""
    # One database is less to copy.
    lines = ["UPDATE pg_database SET datistemplate = false", "DROP DATABASE postgres", "DROP DATABASE template0"]
    lines.append("CREATE TABLE answers (run text, client int, turn int, low int, total bigint, digest bigint)")
    for client in range(CLIENTS):
        columns = f"id, id::bigint * {7 + client} % 1009 AS value, repeat(md5(id::text), 16) AS filler"
        lines.append(f"CREATE TABLE shard_{client} AS SELECT {columns} FROM generate_series(1, {rows}) AS id")
    return "\n".join([*lines, "VACUUM FREEZE ANALYZE", "CHECKPOINT", ""])


def command(words, environment, **options):
    """Runs a command; subprocess.CalledProcessError, whose `output` is what it said, where it fails."""
    return subprocess.run(words, env=environment, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options).stdout


def make_database(folder, environment, rows):
    """A cluster of PostgreSQL, stopped, in FOLDER/data.tar: guests read one large file much faster than a thousand small ones."""
    data = os.path.join(folder, "data")
    os.mkdir(data)
    user = AS_NOBODY.split() if os.geteuid() == 0 else []
    if user:
        os.chown(data, NOBODY, NOBODY)
    command([*user, "initdb", "-D", data, "-A", "trust", "-U", "bench", "--no-sync", "--wal-segsize=1"], environment, cwd="/")
    with open(os.path.join(data, "postgresql.conf"), "a", encoding="utf-8") as file:
        file.write(SETTINGS)
    said = command([*user, "postgres", "--single", "-D", data, DATABASE], environment, cwd="/", input=statements(rows))
    if "ERROR" in said or "FATAL" in said:
        raise fetch.Failed(f"the database could not be made: {said[-600:]}")
    with tarfile.open(os.path.join(folder, "data.tar"), "w") as tar:
        tar.add(data, "data", filter=of_nobody)
    shutil.rmtree(data)


def of_nobody(member):
    """A member of the archive, owned by the guest's user of the server."""
    member.uid = member.gid = NOBODY
    member.uname = member.gname = ""
    return member


def build(root, folder):
    """The small programs, and the scripts beside them."""
    include = os.path.join(root, "crates", "lab", "plugin")
    for name, product, extra in (("region", "region", []), ("cache_load", "cache_load", []), ("counted", "counted.so", ["-shared", "-fPIC"])):
        source = os.path.join(root, "servers", "programs", name + ".c")
        command(["cc", "-O2", "-Wall", "-pthread", *extra, "-I", include, "-o", os.path.join(folder, product), source], None)
    for name in ("servers/lab.sh", "servers/programs/shard.pgbench"):
        with open(os.path.join(root, name), encoding="utf-8") as file:
            files.write(os.path.join(folder, os.path.basename(name)), file.read())


def prepare(root, folder, servers, rows):
    """Everything for these servers below FOLDER, with a file `environment` that shells source."""
    unpack()
    os.makedirs(folder, exist_ok=True)
    found = packages.environment(cache())
    build(root, folder)
    if "postgresql" in servers:
        make_database(folder, {**os.environ, **found}, rows)
    quoted = {**found, "PGHOST": "/tmp", "PGUSER": "bench", "PGDATABASE": DATABASE, "programs": folder, "as": AS_NOBODY, "rows": str(rows)}
    files.write(os.path.join(folder, "environment"), "".join(f"export {name}='{value}'\n" for name, value in quoted.items()))


def facts(output):
    """What the guest printed, as (kind, server, way, moment, value); a line that begins with FAILED is a failure of the guest's script."""
    found, failures = [], []
    for line in output.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "FAILED" or " FAILED " in line:
            failures.append(line)
        elif kind == "LOAD":
            server, way, moment, value = rest.split(" ", 3)
            found.append((kind, server, way, moment, json.loads(value)))
        elif kind in ("KILLED", "MOVED", "SERVER", "STOP"):
            server, way, value = rest.split(" ", 2)
            found.append((kind, server, way, "", json.loads(value)))
    return found, failures
