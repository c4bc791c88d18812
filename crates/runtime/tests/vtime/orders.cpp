// orders.cpp: clocks through C++20's atomics, semaphores, latches and barriers, and a pool of std::threads. Compiled by the wrapper, so that its
// atomics are seen. `orders CASE`.
#include "work.h"

#include <atomic>
#include <barrier>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <latch>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

static constexpr int N = 16;
static std::uint64_t early;
static std::uint64_t stamp;

static void flag(int rounds) {
    std::atomic<int> turn{0};
    std::thread producer([&] {
        for (int i = 0; i < rounds; i++) {
            while (turn.load(std::memory_order_acquire) != 0) std::this_thread::yield();
            work(30000);
            stamp = clock_now();
            turn.store(1, std::memory_order_release);
        }
    });
    for (int i = 0; i < rounds; i++) {
        while (turn.load(std::memory_order_acquire) != 1) std::this_thread::yield();
        early += clock_now() < stamp;
        turn.store(0, std::memory_order_release);
    }
    producer.join();
}

static void wait_notify(int rounds) {
    std::atomic<int> turn{0};
    std::thread producer([&] {
        for (int i = 0; i < rounds; i++) {
            turn.wait(1);
            work(30000);
            stamp = clock_now();
            turn = 1;
            turn.notify_one();
        }
    });
    for (int i = 0; i < rounds; i++) {
        turn.wait(0);
        early += clock_now() < stamp;
        turn = 0;
        turn.notify_one();
    }
    producer.join();
}

static void semaphore(int rounds) {
    std::counting_semaphore<4> filled{0}, room{1};
    std::thread producer([&] {
        for (int i = 0; i < rounds; i++) {
            room.acquire();
            work(30000);
            stamp = clock_now();
            filled.release();
        }
    });
    for (int i = 0; i < rounds; i++) {
        filled.acquire();
        early += clock_now() < stamp;
        room.release();
    }
    producer.join();
}

static void meeting(int rounds) {
    std::uint64_t arrived[N];
    std::latch start{N};
    std::barrier meet{N};
    std::uint64_t worst[N] = {};
    std::vector<std::thread> threads;
    for (int me = 0; me < N; me++)
        threads.emplace_back([&, me] {
            work(1000 * std::uint64_t(me));
            start.arrive_and_wait();
            for (int i = 0; i < rounds; i++) {
                work(1000 + 3000 * std::uint64_t((me + i) % N));
                arrived[me] = clock_now();
                meet.arrive_and_wait();
                std::uint64_t now = clock_now();
                for (auto other : arrived)
                    if (other > now && other - now > worst[me]) worst[me] = other - now;
                meet.arrive_and_wait();
            }
        });
    for (auto &thread : threads) thread.join();
    for (auto cycles : worst)
        if (cycles > early) early = cycles;
}

static void pool() {
    std::mutex mutex;
    std::condition_variable filled;
    std::deque<std::function<void()>> queue;
    bool over = false;
    std::uint64_t counts[N] = {};
    std::vector<std::thread> threads;
    std::uint64_t begin = clock_now();
    for (int me = 0; me < N; me++)
        threads.emplace_back([&, me] {
            for (;;) {
                std::unique_lock lock{mutex};
                filled.wait(lock, [&] { return over || !queue.empty(); });
                if (queue.empty()) return;
                auto task = std::move(queue.front());
                queue.pop_front();
                lock.unlock();
                task();
                counts[me]++;
            }
        });
    for (int i = 0; i < 1600; i++) {
        std::lock_guard lock{mutex};
        queue.emplace_back([] { work(100000); });
        filled.notify_one();
    }
    {
        std::lock_guard lock{mutex};
        over = true;
    }
    filled.notify_all();
    for (auto &thread : threads) thread.join();
    std::printf("elapsed %lu\n", clock_now() - begin);
    for (int i = 0; i < N; i++) std::printf("thread %d begin 0 end 0 count %lu\n", i, counts[i]);
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!std::strcmp(name, "flag")) flag(50);
    else if (!std::strcmp(name, "wait")) wait_notify(50);
    else if (!std::strcmp(name, "semaphore")) semaphore(50);
    else if (!std::strcmp(name, "meeting")) meeting(10);
    else if (!std::strcmp(name, "pool")) return pool(), 0;
    else return 2;
    std::printf("early %lu\n", early);
}
