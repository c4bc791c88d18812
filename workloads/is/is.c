/* Integer sort by buckets, as the IS kernel of the NAS parallel benchmarks (Bailey et al., RNR-94-007, 1994): integer keys with a bell-shaped
 * distribution are ranked again and again, two of them changed before each ranking.
 *
 * A ranking is over in milliseconds: all threads read their own keys, send them all to all into buckets, and count each bucket. The
 * keys' distribution makes the middle of `sorted` draw the most. Interleaving helps this program on a four-node Opteron, while a placement
 * daemon that reacts once a second is too late for its bursts (Dashti et al., ASPLOS 2013).
 *
 * Serial: the main thread generates the keys and clears the arrays, as in the first OpenMP versions, so that all pages lie on its node.
 * Parallel: every thread touches first the part on which it works, as in later versions. */
#include "openmp.h"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "random.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum variant { VARIANT_SERIAL, VARIANT_PARALLEL, VARIANT_INTERLEAVED };
static const char *const variants[] = {"serial", "parallel", "interleaved", NULL};
enum { BUCKET_BITS = 10, BUCKETS = 1 << BUCKET_BITS, TEST_KEYS = 5, RANKINGS_MAX = 1000 };

struct settings {
    struct common_options common;
    uint64_t keys_log2, range_log2, rankings;
};

struct preset {
    uint64_t keys_log2, range_log2, rankings;
};
/* `small`: 64 MiB of keys and sorted keys. */
static const struct preset presets[] = {{16, 13, 10}, {23, 19, 10}, {25, 21, 10}, {27, 23, 20}};

struct sort {
    size_t keys, range;
    unsigned shift; /* from a key to its bucket */
    size_t threads;
    uint32_t *key_array;
    uint32_t *sorted;    /* the keys by bucket, within a bucket in any order */
    uint32_t *rank;      /* of each value: how many keys are at most that value */
    uint32_t *positions; /* [thread][bucket]: where the thread's next key of that bucket goes */
    uint32_t *bucket_end;
};

/* What a ranking changed and what it found, to be checked afterwards. */
struct trial {
    size_t place[2];
    uint32_t before[2], after[2];
    uint32_t ranks[TEST_KEYS];
};

static struct settings parse(int argc, char **argv) {
    struct settings settings = {.common = COMMON_OPTIONS_DEFAULT};
    const struct option_spec specs[] = {
        option_size(&settings.common),
        option_choice("variant", &settings.common.variant, variants, "who touches the memory first"),
        option_threads(&settings.common),
        option_seed(&settings.common),
        option_number("keys-log2", &settings.keys_log2, 12, 31, "log2 of the number of keys"),
        option_number("range-log2", &settings.range_log2, BUCKET_BITS, 30, "log2 of the number of values that a key can have"),
        option_number("rankings", &settings.rankings, 1, RANKINGS_MAX, "rankings of all keys"),
    };
    const struct program program = {"is", "bucket sort of integers, ranked again and again", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const struct preset *preset = &presets[settings.common.size];
    if (!settings.keys_log2) settings.keys_log2 = preset->keys_log2;
    if (!settings.range_log2) settings.range_log2 = preset->range_log2;
    if (!settings.rankings) settings.rankings = preset->rankings;
    return settings;
}

/* The mean of four uniform values: bell-shaped, within [0, range). */
static uint32_t draw_key(uint64_t seed, size_t place, size_t range) {
    struct rng rng = rng_of(seed, place);
    uint64_t sum = 0;
    for (int i = 0; i < 4; i++) sum += rng_below(&rng, (uint32_t)range);
    return (uint32_t)(sum / 4);
}

/* Where interleaving is not to be had, pages are dealt out by first touch. */
static void interleave(void *memory, size_t bytes) {
    if (placement_interleave(memory, bytes)) return;
#pragma omp parallel for schedule(static, 1)
    for (size_t at = 0; at < bytes; at += PAGE_BYTES) ((volatile char *)memory)[at] = 0;
}

static void generate(struct sort *sort, uint64_t seed, enum variant variant) {
    uint32_t *key_array = sort->key_array, *sorted = sort->sorted;
    if (variant == VARIANT_INTERLEAVED) {
        interleave(key_array, sort->keys * sizeof *key_array);
        interleave(sorted, sort->keys * sizeof *sorted);
    }
#pragma omp parallel for schedule(static) if (variant == VARIANT_PARALLEL)
    for (size_t i = 0; i < sort->keys; i++) {
        key_array[i] = draw_key(seed, i, sort->range);
        sorted[i] = 0;
    }
#pragma omp parallel for schedule(static) if (variant == VARIANT_PARALLEL)
    for (size_t value = 0; value < sort->range; value++) sort->rank[value] = 0;
}

/* Turns each thread's counts per bucket into the places where its keys go: buckets in order, in each the threads in order. */
static void place_buckets(struct sort *sort) {
    uint32_t at = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        for (size_t thread = 0; thread < sort->threads; thread++) {
            uint32_t *position = &sort->positions[thread * BUCKETS + bucket];
            uint32_t count = *position;
            *position = at;
            at += count;
        }
        sort->bucket_end[bucket] = at;
    }
}

/* Ranks of the values of one bucket, from its keys alone. */
static void rank_bucket(struct sort *sort, size_t bucket) {
    uint32_t begin = bucket ? sort->bucket_end[bucket - 1] : 0, end = sort->bucket_end[bucket];
    size_t first = bucket << sort->shift, last = first + ((size_t)1 << sort->shift);
    memset(&sort->rank[first], 0, (last - first) * sizeof *sort->rank);
    for (uint32_t i = begin; i < end; i++) sort->rank[sort->sorted[i]]++;
    uint32_t sum = begin;
    for (size_t value = first; value < last; value++) {
        sum += sort->rank[value];
        sort->rank[value] = sum;
    }
}

static void rank_keys(struct sort *sort) {
#pragma omp parallel
    {
        uint32_t *own = &sort->positions[(size_t)omp_get_thread_num() * BUCKETS];
        memset(own, 0, BUCKETS * sizeof *own);
        /* Both loops give a thread the same keys. */
#pragma omp for schedule(static)
        for (size_t i = 0; i < sort->keys; i++) own[sort->key_array[i] >> sort->shift]++;
#pragma omp single
        place_buckets(sort);
#pragma omp for schedule(static)
        for (size_t i = 0; i < sort->keys; i++) {
            uint32_t key = sort->key_array[i];
            sort->sorted[own[key >> sort->shift]++] = key;
        }
        /* Buckets differ in size. */
#pragma omp for schedule(dynamic)
        for (size_t bucket = 0; bucket < BUCKETS; bucket++) rank_bucket(sort, bucket);
    }
}

/* Two keys change before ranking number `number`, so that no ranking can be left out. */
static void change_keys(struct sort *sort, uint64_t number, uint64_t rankings, struct trial *trial) {
    trial->place[0] = number % sort->keys;
    trial->place[1] = (number + rankings) % sort->keys;
    trial->after[0] = (uint32_t)(number % sort->range);
    trial->after[1] = (uint32_t)(sort->range - 1 - number % sort->range);
    for (int i = 0; i < 2; i++) {
        trial->before[i] = sort->key_array[trial->place[i]];
        sort->key_array[trial->place[i]] = trial->after[i];
    }
}

static uint32_t test_key(const struct sort *sort, int number) {
    return (uint32_t)((sort->range - 1) * (uint64_t)(2 * number + 1) / (2 * TEST_KEYS));
}

/* The last ranking against a plain count of all values, and each ranking's test keys by undoing the changes from there backwards. */
static void verify(const struct sort *sort, const struct trial *trials, uint64_t rankings) {
    uint32_t *counts = calloc(sort->range, sizeof *counts), sum = 0;
    need_memory(counts, sort->range * sizeof *counts);
    for (size_t i = 0; i < sort->keys; i++) counts[sort->key_array[i]]++;
    for (size_t value = 0; value < sort->range; value++) {
        sum += counts[value];
        if (sort->rank[value] != sum) fail(EXIT_WRONG_RESULT, "wrong result: value %zu has the rank %u, not %u", value, sort->rank[value], sum);
    }
    free(counts);
    for (int test = 0; test < TEST_KEYS; test++) {
        uint32_t key = test_key(sort, test), rank = sort->rank[key];
        for (uint64_t number = rankings; number-- > 0;) {
            const struct trial *trial = &trials[number];
            if (trial->ranks[test] != rank) {
                fail(EXIT_WRONG_RESULT, "wrong result: ranking %" PRIu64 " gives key %u the rank %u, not %u", number, key, trial->ranks[test], rank);
            }
            for (int i = 1; i >= 0; i--) rank = rank - (trial->after[i] <= key) + (trial->before[i] <= key);
        }
    }
}

int main(int argc, char **argv) {
    struct settings settings = parse(argc, argv);
    fprintf(stderr, "is: %s, %" PRIu64 " threads\n", variants[settings.common.variant], settings.common.threads);
    openmp_start(settings.common.threads);
    phase("keys");
    struct sort sort = {
        .keys = (size_t)1 << settings.keys_log2,
        .range = (size_t)1 << settings.range_log2,
        .shift = (unsigned)(settings.range_log2 - BUCKET_BITS),
        .threads = settings.common.threads,
    };
    uint32_t *key_array = aligned_alloc(PAGE_BYTES, whole_pages(sort.keys * sizeof *key_array));
    sort.key_array = need_memory(key_array, sort.keys * sizeof *key_array);
    uint32_t *sorted = aligned_alloc(PAGE_BYTES, whole_pages(sort.keys * sizeof *sorted));
    sort.sorted = need_memory(sorted, sort.keys * sizeof *sorted);
    uint32_t *rank = aligned_alloc(PAGE_BYTES, whole_pages(sort.range * sizeof *rank));
    sort.rank = need_memory(rank, sort.range * sizeof *rank);
    uint32_t *positions = aligned_alloc(PAGE_BYTES, whole_pages(sort.threads * BUCKETS * sizeof *positions));
    sort.positions = need_memory(positions, sort.threads * BUCKETS * sizeof *positions);
    uint32_t *bucket_end = calloc(BUCKETS, sizeof *bucket_end);
    sort.bucket_end = need_memory(bucket_end, BUCKETS * sizeof *bucket_end);
    struct trial *trials = calloc(settings.rankings, sizeof *trials);
    need_memory(trials, settings.rankings * sizeof *trials);
    generate(&sort, settings.common.seed, (enum variant)settings.common.variant);

    phase("rank");
    for (uint64_t number = 0; number < settings.rankings; number++) {
        change_keys(&sort, number, settings.rankings, &trials[number]);
        rank_keys(&sort);
        for (int test = 0; test < TEST_KEYS; test++) trials[number].ranks[test] = sort.rank[test_key(&sort, test)];
    }
    phase_verify();
    verify(&sort, trials, settings.rankings);
    uint64_t checksum = hash_bytes(0, rank, sort.range * sizeof *rank);
    for (uint64_t number = 0; number < settings.rankings; number++) checksum = hash_bytes(checksum, trials[number].ranks, sizeof trials->ranks);
    phase(NULL);
    printf("is ok keys=%zu range=%zu rankings=%" PRIu64 " checksum=%016" PRIx64 "\n", sort.keys, sort.range, settings.rankings, checksum);
    free(key_array);
    free(sorted);
    free(rank);
    free(positions);
    free(bucket_end);
    free(trials);
    return 0;
}
