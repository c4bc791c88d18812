// Map tasks fetched by whichever thread is free, which emit pairs of key and value into buffers of their own; then each thread
// collects its share of the keys from all buffers. What Phoenix and Metis do, for keys that are small integers.
#ifndef PCA_MAPREDUCE_HPP
#define PCA_MAPREDUCE_HPP

#include "team.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

template <class Value> class MapReduce {
  public:
    struct Pair {
        std::uint64_t key;
        Value value;
    };
    using Emitted = std::vector<Pair>;

    explicit MapReduce(Team &team) : team_(team), buffers_(static_cast<std::size_t>(team.size() * team.size())) {}

    // Calls map(task, emit) for each task; then, key by key in no order, collect(key, value) once for each pair.
    // The thread that collects a key is key modulo the size of the team.
    template <class Map, class Collect> void run(std::size_t tasks, const Map &map, const Collect &collect) {
        const std::size_t threads = static_cast<std::size_t>(team_.size());
        std::atomic<std::size_t> next{0};
        team_.run([&](int member) {
            Emitted *const own = &buffers_[static_cast<std::size_t>(member) * threads];
            const auto emit = [&](std::uint64_t key, const Value &value) { own[key % threads].push_back({key, value}); };
            for (std::size_t task = next++; task < tasks; task = next++) map(task, emit);
        });
        team_.run([&](int member) {
            for (std::size_t from = 0; from < threads; from++) {
                Emitted &pairs = buffers_[from * threads + static_cast<std::size_t>(member)];
                for (const Pair &pair : pairs) collect(pair.key, pair.value);
                pairs.clear();
            }
        });
    }

  private:
    Team &team_;
    std::vector<Emitted> buffers_; // [emitting thread][collecting thread]
};

#endif
