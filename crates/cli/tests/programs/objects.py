import ctypes
import threading

# Calls through it are made without the interpreter's lock.
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p


class Grid:
    def __init__(self, n):
        self.cells = bytearray(n)  # LINE cells


def blocks(n):
    for i in range(20):
        block = bytes(n + i)  # LINE block
        yield block


def fill(n):
    table = [0] * n  # LINE table
    return len(
        bytes(
            8 * n  # LINE inner
        )
    )


def unlocked(n):
    raw = libc.malloc(ctypes.c_size_t(n))  # LINE raw
    return raw


grids = [Grid(100_000) for _ in range(7)]
kept = list(blocks(50_000))
threads = [threading.Thread(target=fill, args=(10_000,)) for _ in range(3)]
threads += [threading.Thread(target=unlocked, args=(70_000,)) for _ in range(3)]
others = [unlocked(70_000) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(grids), len(kept))
