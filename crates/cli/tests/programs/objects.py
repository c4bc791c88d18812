import threading


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


grids = [Grid(100_000) for _ in range(7)]
kept = list(blocks(50_000))
threads = [threading.Thread(target=fill, args=(10_000,)) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(len(grids), len(kept))
