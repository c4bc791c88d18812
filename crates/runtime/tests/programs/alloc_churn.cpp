// Threads make blocks in many ways and hand half of them to their neighbours, who give them back: addresses are re-used across threads at once.
#include "truth.h"
#include <atomic>
#include <malloc.h>
#include <new>

enum { SLOTS = 64 };
static std::atomic<void *> exchange[SLOTS];

static void *make(unsigned choice, unsigned bytes) {
    switch (choice % 5) {
    case 0: return malloc(bytes);
    case 1: return calloc(1, bytes);
    case 2: return realloc(malloc(8), bytes);
    case 3: return memalign(64, bytes);
    default: return malloc(bytes * 40);
    }
}

static void *work(void *argument) {
    auto *parameters = static_cast<unsigned *>(argument);
    unsigned state = parameters[0] * 2654435761u + 1;
    for (unsigned i = 0; i < parameters[1]; i++) {
        state = state * 1664525u + 1013904223u;
        void *block = make(state >> 8, 16 + (state >> 16) % 500);
        CHECK(block != nullptr);
        memset(block, 1, 16);
        if (state >> 31) block = exchange[(state >> 12) % SLOTS].exchange(block);
        free(block);
        if (i % 16 == 0) delete[] new char[100 + i % 50];
    }
    return nullptr;
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    unsigned threads = (unsigned)atoi(arguments[1]), rounds = (unsigned)atoi(arguments[2]);
    static unsigned parameters[256][2];
    pthread_t ids[256];
    void *first = malloc(12345);
    MADE(first, 12345, "Malloc");
    for (unsigned i = 0; i < threads; i++) {
        parameters[i][0] = i;
        parameters[i][1] = rounds;
        CHECK(pthread_create(&ids[i], nullptr, work, parameters[i]) == 0);
    }
    for (unsigned i = 0; i < threads; i++) pthread_join(ids[i], nullptr);
    for (auto &slot : exchange) free(slot.exchange(nullptr));
    GONE(first);
    free(first);
    truth_write();
}
