// Generation and placement of the graph.
#include "graph.hpp"

#include "options.h"
#include "placement.h"
#include "random.h"

#include <cstdlib>
#include <vector>

namespace {

struct Ends {
    Vertex a, b;
};

// A bijection on the vertices, so that those with many edges do not all have low numbers.
Vertex scatter(std::uint64_t seed, unsigned scale, std::uint64_t vertex) {
    const std::uint64_t mask = (std::uint64_t{1} << scale) - 1;
    for (std::uint64_t round = 0; round < 2; round++) {
        vertex = (vertex * (mix64(seed + round) | 1)) & mask;
        vertex ^= vertex >> (scale + 1) / 2;
    }
    return static_cast<Vertex>(vertex);
}

// Edge `number` of a Kronecker graph (Leskovec and others, 2005) with the initiator of Graph500: at each level one of four quadrants, with
// probabilities 0.57, 0.19, 0.19 and 0.05.
Ends draw_edge(std::uint64_t seed, unsigned scale, std::uint64_t number) {
    rng rng = rng_of(seed, number);
    std::uint64_t a = 0, b = 0;
    for (unsigned level = 0; level < scale; level++) {
        const std::uint32_t draw = rng_below(&rng, 100);
        a = a << 1 | (draw >= 76);
        b = b << 1 | ((draw >= 57 && draw < 76) || draw >= 95);
    }
    return {scatter(seed, scale, a), scatter(seed, scale, b)};
}

// The same for both directions of an edge.
std::uint8_t draw_weight(std::uint64_t seed, Ends ends) {
    return static_cast<std::uint8_t>(1 + mix64(seed ^ mix64(ends.a) ^ mix64(~std::uint64_t{ends.b})) % 255);
}

template <class Element> void touch(Element *array, std::size_t begin, std::size_t end) {
    auto *bytes = reinterpret_cast<volatile char *>(array);
    for (std::size_t at = whole_pages(begin * sizeof *array); at < end * sizeof *array; at += PAGE_BYTES) bytes[at] = 0;
}

} // namespace

Graph::Graph(std::uint64_t seed, unsigned scale, std::uint64_t degree, Placement placement) : vertices_(std::size_t{1} << scale) {
    std::vector<Ends> list(vertices_ * degree);
    for (std::size_t number = 0; number < list.size(); number++) list[number] = draw_edge(seed, scale, number);

    const std::size_t offsets_bytes = whole_pages((vertices_ + 1) * sizeof *offsets_);
    offsets_ = static_cast<std::uint64_t *>(std::aligned_alloc(PAGE_BYTES, offsets_bytes));
    need_memory(offsets_, offsets_bytes);
    std::vector<std::uint64_t> next(vertices_ + 1, 0);
    for (const Ends &ends : list) {
        next[ends.a + 1]++;
        next[ends.b + 1]++;
    }
    for (std::size_t vertex = 0; vertex < vertices_; vertex++) next[vertex + 1] += next[vertex];
    if (placement == Placement::kInterleaved) placement_interleave(offsets_, offsets_bytes);
    for (std::size_t vertex = 0; vertex <= vertices_; vertex++) offsets_[vertex] = next[vertex];

    const std::size_t neighbours_bytes = whole_pages(edges() * sizeof *neighbours_), weights_bytes = whole_pages(edges() * sizeof *weights_);
    neighbours_ = static_cast<Vertex *>(std::aligned_alloc(PAGE_BYTES, neighbours_bytes));
    need_memory(neighbours_, neighbours_bytes);
    weights_ = static_cast<std::uint8_t *>(std::aligned_alloc(PAGE_BYTES, weights_bytes));
    need_memory(weights_, weights_bytes);
    place(placement);
    for (const Ends &ends : list) {
        const std::uint8_t weight = draw_weight(seed, ends);
        for (const Ends &way : {ends, Ends{ends.b, ends.a}}) {
            neighbours_[next[way.a]] = way.b;
            weights_[next[way.a]++] = weight;
        }
    }
}

Graph::~Graph() {
    std::free(offsets_);
    std::free(neighbours_);
    std::free(weights_);
}

void Graph::place(Placement placement) {
    if (placement == Placement::kInterleaved) {
        placement_interleave(neighbours_, edges() * sizeof *neighbours_);
        placement_interleave(weights_, edges() * sizeof *weights_);
    }
    if (placement != Placement::kPartitioned) return;
#pragma omp parallel for schedule(static)
    for (std::size_t vertex = 0; vertex < vertices_; vertex++) {
        touch(neighbours_, begin(vertex), end(vertex));
        touch(weights_, begin(vertex), end(vertex));
    }
}
