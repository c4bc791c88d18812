// The parallel kernels on a graph. Each runs on the default OpenMP team. Which tree a search finds depends on timing; depths, distances and scores do not.
#ifndef BFS_KERNELS_HPP
#define BFS_KERNELS_HPP

#include "graph.hpp"

#include <cstddef>
#include <cstdint>

constexpr Vertex kNoVertex = ~Vertex{0};
constexpr std::uint32_t kUnreached = ~std::uint32_t{0};
constexpr double kDamping = 0.85;

// Vertices to be visited. Threads add to buffers of their own, which go to the shared array when they are full.
class Frontier {
  public:
    // Room for `room` vertices between two calls of clear().
    explicit Frontier(std::size_t room);
    ~Frontier();
    Frontier(const Frontier &) = delete;
    Frontier &operator=(const Frontier &) = delete;
    std::size_t size() const { return size_; }
    Vertex operator[](std::size_t i) const { return queue_[i]; }
    void clear() { size_ = 0; }
    // By any thread: appends `count` vertices.
    void append(const Vertex *vertices, std::size_t count);

  private:
    Vertex *queue_;
    std::size_t size_ = 0;
};

// A tree of shortest paths from `source` into parent[]: kNoVertex where it does not reach. Returns the number of levels that it searched from the bottom up.
int breadth_first(const Graph &graph, Vertex source, Vertex *parent);

// Weighted distances from `source`: kUnreached where there is no way. Returns the number of buckets.
int shortest_paths(const Graph &graph, Vertex source, std::uint32_t *distance);

// `iterations` steps from equal scores; `given` holds what each vertex gives to each neighbour.
void page_rank(const Graph &graph, int iterations, double *score, double *given);

#endif
