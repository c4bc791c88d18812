// A team of threads that executes one function at a time, all of them together, between two barriers. The main thread is member 0.
// Static work sharing: the same member gets the same part of an array in every call, so that what it touched first stays its own.
#ifndef WORKLOADS_TEAM_HPP
#define WORKLOADS_TEAM_HPP

#include "options.h"

#include <cstddef>
#include <exception>
#include <functional>
#include <pthread.h>
#include <thread>
#include <vector>

struct Range {
    std::size_t begin, end;
};

// Part `part` of `parts` of 0..count, contiguous, sizes differing by one at most.
inline Range part_of(std::size_t count, std::size_t part, std::size_t parts) {
    return {count * part / parts, count * (part + 1) / parts};
}

class Team {
  public:
    explicit Team(int size) : size_(size) {
        if (pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(size))) {
            fail(EXIT_SYSTEM, "cannot make a barrier for %d threads", size);
        }
        try {
            for (int member = 1; member < size; member++) {
                threads_.emplace_back([this, member] { serve(member); });
            }
        } catch (const std::exception &error) {
            fail(EXIT_SYSTEM, "cannot start %d threads (%s); choose fewer --threads", size, error.what());
        }
    }
    Team(const Team &) = delete;
    Team &operator=(const Team &) = delete;
    ~Team() {
        work_ = nullptr;
        pthread_barrier_wait(&barrier_);
        for (std::thread &thread : threads_) thread.join();
        pthread_barrier_destroy(&barrier_);
    }

    int size() const { return size_; }

    // Calls work(member) in every member and returns when all are done.
    void run(const std::function<void(int)> &work) {
        work_ = &work;
        pthread_barrier_wait(&barrier_);
        work(0);
        pthread_barrier_wait(&barrier_);
    }

  private:
    void serve(int member) {
        for (;;) {
            pthread_barrier_wait(&barrier_);
            if (!work_) return;
            (*work_)(member);
            pthread_barrier_wait(&barrier_);
        }
    }

    int size_;
    pthread_barrier_t barrier_;
    const std::function<void(int)> *work_ = nullptr; // written by member 0 before a barrier, read by all after it
    std::vector<std::thread> threads_;
};

// Writes one zero per page of fresh memory, page by page in turn over the team: interleaves by first touch.
inline void touch_striped(Team &team, void *start, std::size_t bytes) {
    team.run([&](int member) {
        volatile char *memory = static_cast<volatile char *>(start);
        const std::size_t step = 4096u * static_cast<std::size_t>(team.size());
        for (std::size_t at = 4096u * static_cast<std::size_t>(member); at < bytes; at += step) memory[at] = 0;
    });
}

#endif
