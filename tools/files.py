"""Files that the project's Python tools keep between runs: written atomically, identified by a checksum of their contents."""

import hashlib
import os


def write(path, text):
    """Writes the file completely or not at all, by way of a temporary file."""
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".part", path)


def hash_of(path):
    """SHA-256 of the contents, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
