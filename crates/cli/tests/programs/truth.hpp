// truth.hpp: what the generated part of the program with known truth (attribution.rs writes it) is put around: threads that allocate at many
// sites, hand objects to each other, use them in logged bursts, reallocate and free them, and a fork in the middle.
#pragma once

#include "truth_log.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <vector>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum How { BY_FREE, BY_DELETE, BY_DELETE_ARRAY, BY_DELETE_ALIGNED, BY_MUNMAP };

struct Made {
    void *address;
    std::uint64_t before, after;
};

struct Site {
    Made (*make)(std::size_t bytes);
    int line;
    const char *kind;
    How how;
};

struct Resite {
    Made (*make)(void *old, std::size_t bytes);
    int line;
};

struct Item {
    void *address;
    std::size_t bytes;
    std::uint64_t instance;
    How how;
};

// The generated part.
extern const Site sites[];
extern const std::size_t site_count;
extern const Resite resites[];
extern const std::size_t resite_count;

namespace truth {

constexpr std::size_t kMailboxes = 512, kPage = 4096;
inline std::atomic<Item *> mailboxes[kMailboxes];

struct Random {
    std::uint64_t state;
    std::uint64_t next() {
        std::uint64_t x = state += 0x9e3779b97f4a7c15ull;
        x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
        return x ^ (x >> 31);
    }
    std::uint64_t below(std::uint64_t bound) { return next() % bound; }
};

inline void log_born(const Item &item, const Made &made, int line, const char *kind) {
    truth_entry entry = {TRUTH_BORN, static_cast<std::uint32_t>(line), item.instance, reinterpret_cast<std::uint64_t>(item.address),
                         item.bytes, made.before, made.after, {0}};
    std::strncpy(entry.kind, kind, sizeof entry.kind - 1);
    truth_write(&entry);
}

inline void log_died(const Item &item, std::uint64_t before, std::uint64_t after) {
    const truth_entry entry = {TRUTH_DIED, 0, item.instance, reinterpret_cast<std::uint64_t>(item.address), item.bytes, before, after, {0}};
    truth_write(&entry);
}

// Between the two stamps this thread touches the item and nothing else that is instrumented.
__attribute__((noinline)) inline void sweep(volatile unsigned char *bytes, std::size_t first, std::size_t end, std::size_t stride,
                                            std::size_t last, std::uint64_t *before, std::uint64_t *after) {
    const std::uint64_t start = truth_now();
    for (std::size_t i = first; i < end; i += stride) bytes[i] = static_cast<unsigned char>(i);
    unsigned char sum = bytes[0];
    sum = static_cast<unsigned char>(sum + bytes[last]);
    (void)sum;
    const std::uint64_t stop = truth_now();
    *before = start;
    *after = stop;
}

inline void burst(const Item &item, Random &random) {
    const std::size_t stride = 64 + 64 * (item.bytes / 1024);
    std::uint64_t before, after;
    sweep(static_cast<volatile unsigned char *>(item.address), random.below(item.bytes < 64 ? item.bytes : 64), item.bytes, stride,
          item.bytes - 1, &before, &after);
    const truth_entry entry = {TRUTH_BURST, 0, item.instance, reinterpret_cast<std::uint64_t>(item.address), item.bytes, before, after, {0}};
    truth_write(&entry);
}

inline void destroy(const Item &item) {
    const std::uint64_t before = truth_now();
    switch (item.how) {
    case BY_FREE: std::free(item.address); break;
    case BY_DELETE: ::operator delete(item.address); break;
    case BY_DELETE_ARRAY: ::operator delete[](item.address); break;
    case BY_DELETE_ALIGNED: ::operator delete(item.address, std::align_val_t(64)); break;
    case BY_MUNMAP: munmap(item.address, item.bytes); break;
    }
    const std::uint64_t after = truth_now();
    log_died(item, before, after);
}

// From 16 bytes to 64 KiB, small ones more often.
inline std::size_t some_size(Random &random) { return 16 + random.below((std::size_t(1) << (4 + random.below(13))) - 15); }

struct Worker {
    std::uint64_t number;
    Random random;
    std::uint64_t made = 0;

    Worker(std::uint64_t which, std::uint64_t seed) : number(which), random{seed * 1000003 + which} {}

    std::uint64_t next_instance() { return number << 32 | ++made; }

    void create(Item &item) {
        const Site &site = sites[random.below(random.below(8) == 0 ? site_count : site_count - 2)];
        std::size_t bytes = some_size(random);
        if (site.how == BY_MUNMAP) bytes = (bytes + kPage - 1) / kPage * kPage;
        const Made made_now = site.make(bytes);
        if (made_now.address == nullptr) std::abort();
        item = {made_now.address, bytes, next_instance(), site.how};
        log_born(item, made_now, site.line, site.kind);
    }

    void change(Item &item) {
        const Resite &site = resites[random.below(resite_count)];
        const std::size_t nearly = item.bytes + random.below(16);
        const std::size_t bytes = random.below(3) == 0 ? nearly : some_size(random);
        const Made made_now = site.make(item.address, bytes);
        if (made_now.address == nullptr) std::abort();
        log_died(item, made_now.before, made_now.after);
        item = {made_now.address, bytes, next_instance(), BY_FREE};
        log_born(item, made_now, site.line, "realloc");
    }

    // One round: a new object, then somebody's older one, which this thread uses, changes or frees.
    void round(std::atomic<Item *> *boxes, std::size_t box_count, std::vector<Item *> &spare) {
        Item *item = spare.back();
        spare.pop_back();
        create(*item);
        burst(*item, random);
        Item *other = boxes[random.below(box_count)].exchange(item);
        if (other == nullptr) return;
        burst(*other, random);
        if (other->how == BY_FREE && random.below(4) == 0) {
            change(*other);
            burst(*other, random);
        }
        destroy(*other);
        spare.push_back(other);
    }

    void run(std::uint64_t rounds, std::atomic<Item *> *boxes, std::size_t box_count, std::vector<Item *> &spare) {
        for (std::uint64_t i = 0; i < rounds && !spare.empty(); i++) round(boxes, box_count, spare);
    }
};

inline std::vector<Item *> spares(std::size_t count) {
    std::vector<Item *> result;
    for (std::size_t i = 0; i < count; i++) result.push_back(static_cast<Item *>(std::calloc(1, sizeof(Item))));
    return result;
}

inline void thread_main(const char *folder, std::uint64_t number, std::uint64_t rounds) {
    truth_open(folder);
    std::vector<Item *> spare = spares(kMailboxes + 1);
    Worker(number, 1).run(rounds, mailboxes, kMailboxes, spare);
    truth_close();
}

// The child goes on with what it inherited: uses it, frees some of it, allocates anew, and uses the rest again.
inline int child_main(const char *folder, Worker worker, std::vector<Item> &mine, std::uint64_t rounds) {
    truth_open(folder);
    worker.number += 1000;
    for (std::size_t i = 0; i < mine.size(); i++) {
        burst(mine[i], worker.random);
        if (i % 2 == 0) destroy(mine[i]);
        if (i % 2 == 0) worker.create(mine[i]);
        burst(mine[i], worker.random);
    }
    static std::atomic<Item *> boxes[64];
    std::vector<Item *> spare = spares(65);
    worker.run(rounds, boxes, 64, spare);
    for (const Item &item : mine) burst(item, worker.random);
    truth_close();
    return 0;
}

inline int main_program(const char *folder, std::uint64_t threads, std::uint64_t rounds) {
    std::vector<std::thread> team;
    for (std::uint64_t i = 1; i < threads; i++) team.emplace_back(thread_main, folder, i, rounds);
    // The log is opened after the fork, so that no entry is written twice; what the child inherits is logged by the parent.
    Worker worker(0, 1);
    std::vector<Item> mine(200);
    truth_open(folder);
    for (Item &item : mine) {
        worker.create(item);
        burst(item, worker.random);
    }
    truth_close();
    const pid_t child = fork();
    if (child == 0) _exit(child_main(folder, worker, mine, rounds));
    char parent_folder[4096];
    std::snprintf(parent_folder, sizeof parent_folder, "%s/after", folder);
    if (mkdir(parent_folder, 0700) != 0) return 1;
    truth_open(parent_folder);
    std::vector<Item *> spare = spares(kMailboxes + 1);
    for (std::uint64_t i = 0; i < rounds; i++) {
        if (i < mine.size()) burst(mine[i], worker.random);
        if (!spare.empty()) worker.round(mailboxes, kMailboxes, spare);
    }
    for (const Item &item : mine) {
        burst(item, worker.random);
        destroy(item);
    }
    truth_close();
    for (std::thread &thread : team) thread.join();
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) return 1;
    std::printf("done\n");
    return 0;
}

} // namespace truth
