"""One thread fills an array; four others sum it. Usage: table.py ROUNDS"""

import sys
import threading

import numpy

CELLS = 1 << 20


def fill(made):
    table = numpy.arange(CELLS, dtype=numpy.float64)
    table *= 31
    made.append(table)


def read(table, rounds, sums):
    for _ in range(rounds):
        scaled = table * 0.5
        sums.append(float(scaled.sum()))


def main():
    rounds = int(sys.argv[1])
    made, sums = [], []
    owner = threading.Thread(target=fill, args=(made,), name="owner")
    owner.start()
    owner.join()
    readers = [threading.Thread(target=read, args=(made[0], rounds, sums), name=f"reader {number}") for number in range(4)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    print(len(set(sums)) == 1)


main()
