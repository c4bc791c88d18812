#!/usr/bin/env python3
"""Makes inputs for programs of the zoo: the same bytes on every machine, from a seed.

usage: inputs.py KIND SIZE > FILE

KIND and the unit of SIZE: text (KiB of made-up words), genome (bases, FASTA), reads (of 100 bases from that genome of 200,000 bases, FASTQ),
proteins (sequences, a family of relatives, FASTA), dna (sequences of relatives, FASTA), photo (pixels of each side, binary PPM), video
(frames of 352 x 288, Y4M), sound (seconds, WAV), numbers (rows of CSV).
"""

import array
import math
import struct
import sys

SEED = 20251
GENOME = 200_000


class Random:
    """xorshift64*: the same numbers on every version of Python."""

    def __init__(self, seed):
        self.state = seed * 0x9E3779B97F4A7C15 % 2**64 or 1

    def below(self, bound):
        x = self.state
        x ^= x >> 12
        x = (x ^ x << 25) % 2**64
        x ^= x >> 27
        self.state = x
        return ((x * 0x2545F4914F6CDD1D % 2**64) >> 32) * bound >> 32


def wrapped(name, letters):
    return f">{name}\n" + "".join(letters[at : at + 70] + "\n" for at in range(0, len(letters), 70))


def bases(random, count):
    return "".join("ACGT"[random.below(4)] for _ in range(count))


def changed(random, letters, alphabet, one_in):
    """A relative: some letters differ, few are missing or new."""
    made = []
    for letter in letters:
        if random.below(one_in):
            made.append(letter)
            continue
        kind = random.below(10)
        if kind < 8:
            made.append(alphabet[random.below(len(alphabet))])
        elif kind == 8:
            made.append(letter + alphabet[random.below(len(alphabet))])
    return "".join(made)


def text(size):
    random = Random(SEED)
    words = ["".join("etaoinshrdlucmfwypvbgkjqxz"[min(random.below(26), random.below(26))] for _ in range(2 + random.below(8))) for _ in range(4000)]
    lines, length = [], 0
    while length < size * 1024:
        line = " ".join(words[min(random.below(4000), random.below(4000), random.below(4000))] for _ in range(12))
        lines.append(line)
        length += len(line) + 1
    return ("\n".join(lines) + "\n").encode()[: size * 1024]


def genome(size):
    return wrapped("chromosome", bases(Random(SEED), size)).encode()


def reads(size):
    whole, random, made = bases(Random(SEED), GENOME), Random(SEED + 1), []
    for number in range(size):
        at = random.below(GENOME - 100)
        read = "".join(letter if random.below(100) else "ACGT"[random.below(4)] for letter in whole[at : at + 100])
        made.append(f"@read{number}\n{read}\n+\n{'I' * 100}\n")
    return "".join(made).encode()


def family(size, alphabet, length):
    random = Random(SEED + 2)
    ancestor = "".join(alphabet[random.below(len(alphabet))] for _ in range(length))
    return "".join(wrapped(f"relative{number}", changed(random, ancestor, alphabet, 6)) for number in range(size)).encode()


def photo(size):
    random, pixels = Random(SEED + 3), bytearray()
    for y in range(size):
        for x in range(size):
            value = 128 + 90 * math.sin(x / 17) * math.cos(y / 23)
            noise = random.below(24)
            pixels += bytes((int(value) + noise & 255, (x * 255 // size + noise) & 255, (y * 255 // size) & 255))
    return f"P6\n{size} {size}\n255\n".encode() + bytes(pixels)


def video(size):
    width, height, random, made = 352, 288, Random(SEED + 4), bytearray(b"YUV4MPEG2 W352 H288 F25:1 Ip A1:1 C420\n")
    noise = bytes(random.below(16) for _ in range(width * height * 2))
    wave = bytes(int(110 + 80 * math.sin(x / 13)) for x in range(4 * width))
    for frame in range(size):
        made += b"FRAME\n"
        for y in range(height):
            row, grain = wave[(frame * 3 + y) % (2 * width) :], noise[y * width + frame * 37 :]
            made += bytes(a + b & 255 for a, b in zip(row[:width], grain))
        for plane in (90, 150):
            made += bytes((plane + (frame + y // 8) % 20 for y in range(height // 2) for _ in range(width // 2)))
    return bytes(made)


def sound(size):
    rate, random = 44100, Random(SEED + 5)
    samples = array.array("h", (int(9000 * math.sin(n * (0.03 + n / 9e7))) + random.below(800) for n in range(rate * size)))
    data = samples.tobytes()
    form = struct.pack("<IHHIIHH", 16, 1, 1, rate, 2 * rate, 2, 16)
    return b"RIFF" + struct.pack("<I", 36 + len(data)) + b"WAVEfmt " + form + b"data" + struct.pack("<I", len(data)) + data


def numbers(size):
    random = Random(SEED + 6)
    return "".join(f"{row},{random.below(1_000_000)},{random.below(1000)}\n" for row in range(size)).encode()


KINDS = {
    "text": text,
    "genome": genome,
    "reads": reads,
    "proteins": lambda size: family(size, "ACDEFGHIKLMNPQRSTVWY", 300),
    "dna": lambda size: family(size, "ACGT", 600),
    "photo": photo,
    "video": video,
    "sound": sound,
    "numbers": numbers,
}


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in KINDS or not sys.argv[2].isdigit():
        sys.exit(__doc__)
    sys.stdout.buffer.write(KINDS[sys.argv[1]](int(sys.argv[2])))


if __name__ == "__main__":
    main()
