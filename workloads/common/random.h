/* Seeded random numbers (xorshift64* started through a splitmix64 step) and the 64-bit hash that the checksums use.
 * Every stream is a function of its seed and stream number only, so that work can be split over any number of threads. */
#ifndef WORKLOADS_RANDOM_H
#define WORKLOADS_RANDOM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rng {
    uint64_t state;
};

/* A bijection on 64 bits whose output bits all depend on all input bits. */
static inline uint64_t mix64(uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The generator of stream `stream` of `seed`; its state is never 0, which xorshift could not leave. */
static inline struct rng rng_of(uint64_t seed, uint64_t stream) {
    struct rng rng = {mix64(mix64(seed) ^ (stream * 0xd1342543de82ef95u + 1)) | 1};
    return rng;
}

static inline uint64_t rng_next(struct rng *rng) {
    uint64_t x = rng->state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    rng->state = x;
    return x * 0x2545f4914f6cdd1du;
}

/* Uniform in [0, bound); the bias of the multiplication is below bound / 2^32. */
static inline uint32_t rng_below(struct rng *rng, uint32_t bound) {
    return (uint32_t)(((rng_next(rng) >> 32) * bound) >> 32);
}

/* Uniform in [0, 1). */
static inline double rng_unit(struct rng *rng) {
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

/* Hash of `bytes` bytes, continuing from `hash` (start with 0). Reads eight bytes at a time; depends on the byte order. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
    const unsigned char *at = (const unsigned char *)data;
    for (; bytes >= 8; bytes -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        hash = mix64(hash ^ word);
    }
    uint64_t tail = bytes;
    for (size_t i = 0; i < bytes; i++) tail = tail << 8 | at[i];
    return mix64(hash ^ tail);
}

#endif
