"""What is kept below one folder, so that a run that was interrupted goes on: trees, inputs, runs, and a JSON file of results per program."""

import hashlib
import json
import os

import files


def hash_of(path):
    """As many digits as results are kept under."""
    return files.hash_of(path)[:16]


def key_of(*parts):
    """Of everything that a result depends on."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


class Store:
    """Folders and results of all programs."""

    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        os.makedirs(self.folder, exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def tree(self, name, variant):
        return self.path("programs", name, variant)

    def inputs(self, name):
        return self.path("programs", name, "in")

    def run(self, name, engine):
        return self.path("programs", name, "runs", engine)

    def load(self, name):
        """Results of one program: steps by name, each with its key."""
        try:
            with open(self.path("results", f"{name}.json"), encoding="utf-8") as file:
                return json.load(file)
        except (OSError, ValueError):
            return {}  # Absent, or cut off in its writing.

    def save(self, name, results):
        files.write(self.path("results", f"{name}.json"), json.dumps(results, indent=1, sort_keys=True) + "\n")
