// An undirected random graph with weighted edges, as adjacency lists in two arrays.
#ifndef BFS_GRAPH_HPP
#define BFS_GRAPH_HPP

#include <cstddef>
#include <cstdint>

using Vertex = std::uint32_t;

enum class Placement { kByMain, kInterleaved, kPartitioned };

class Graph {
  public:
    // A Kronecker graph with 2^scale vertices and `degree` edges per vertex, each in both directions. The calling thread builds it; interleaved and
    // partitioned decide before on which nodes the pages go: in turn, or with the threads to which static schedules give the vertices.
    Graph(std::uint64_t seed, unsigned scale, std::uint64_t degree, Placement placement);
    ~Graph();
    Graph(const Graph &) = delete;
    Graph &operator=(const Graph &) = delete;

    std::size_t vertices() const { return vertices_; }
    std::uint64_t edges() const { return offsets_[vertices_]; } // directed
    std::uint64_t begin(std::size_t vertex) const { return offsets_[vertex]; }
    std::uint64_t end(std::size_t vertex) const { return offsets_[vertex + 1]; }
    std::uint64_t degree(std::size_t vertex) const { return end(vertex) - begin(vertex); }
    // The other end of the edge at `at`, begin(vertex) <= at < end(vertex), and the edge's weight, 1 to 255.
    Vertex neighbour(std::uint64_t at) const { return neighbours_[at]; }
    std::uint32_t weight(std::uint64_t at) const { return weights_[at]; }

  private:
    void place(Placement placement);

    std::size_t vertices_;
    std::uint64_t *offsets_;
    Vertex *neighbours_;
    std::uint8_t *weights_;
};

#endif
