// Traversals of a Kronecker graph, push and pull: breadth-first search that changes direction, shortest paths and PageRank, as in the GAP suite
// (Beamer, Asanović, Patterson, arXiv:1508.03619).
//
// Naive: the main thread builds the adjacency lists, as if read from a file, so that all lie on its node; queues, parents, distances and scores are
// touched by all threads. Work is dealt out in small pieces to whichever thread is free, so that partitioning by vertex does little for the lists;
// interleaving spreads them.
#include "kernels.hpp"
#include "openmp.h"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "random.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

namespace {

const char *const kVariants[] = {"naive", "interleaved", "partitioned", nullptr}; // in the order of Placement

struct Options {
    common_options common = COMMON_OPTIONS_DEFAULT;
    std::uint64_t scale = 0, degree = 0, searches = 0, iterations = 0;
};

struct Preset {
    std::uint64_t scale, degree, searches, iterations;
};
// `small`: 45 MiB of adjacency lists.
const Preset kPresets[] = {{12, 8, 2, 5}, {18, 16, 8, 20}, {21, 16, 16, 20}, {24, 16, 64, 20}};

Options parse(int argc, char **argv) {
    Options options;
    const option_spec specs[] = {
        option_size(&options.common),
        option_choice("variant", &options.common.variant, kVariants, "where the pages of the graph go"),
        option_threads(&options.common),
        option_seed(&options.common),
        option_number("scale", &options.scale, 4, 28, "log2 of the number of vertices"),
        option_number("degree", &options.degree, 1, 1000, "edges per vertex"),
        option_number("searches", &options.searches, 1, 100000, "breadth-first searches; half as many of shortest paths"),
        option_number("iterations", &options.iterations, 1, 1000, "iterations of PageRank"),
    };
    const program program = {"bfs", "traversals of a random graph, push and pull", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const Preset &preset = kPresets[options.common.size];
    if (!options.scale) options.scale = preset.scale;
    if (!options.degree) options.degree = preset.degree;
    if (!options.searches) options.searches = preset.searches;
    if (!options.iterations) options.iterations = preset.iterations;
    return options;
}

// Depth of every vertex in the tree: kUnreached outside, and for a vertex whose way to the source never ends.
std::vector<std::uint32_t> depths_of(const Graph &graph, Vertex source, const Vertex *parent) {
    std::vector<std::uint32_t> depth(graph.vertices(), kUnreached);
    std::vector<Vertex> way;
    depth[source] = 0;
    for (std::size_t start = 0; start < graph.vertices(); start++) {
        Vertex vertex = static_cast<Vertex>(start);
        way.clear();
        while (depth[vertex] == kUnreached && parent[vertex] != kNoVertex && way.size() < graph.vertices()) {
            way.push_back(vertex);
            vertex = parent[vertex];
        }
        if (depth[vertex] == kUnreached) continue;
        for (std::uint32_t far = depth[vertex]; !way.empty(); way.pop_back()) depth[way.back()] = ++far;
    }
    return depth;
}

// `depth` must be that of the shortest paths: a tree has them if its edges are the graph's, both ends of each of the graph's edges are reached or
// neither, and their depths differ by one at most.
void verify_tree(const Graph &graph, Vertex source, const Vertex *parent, const std::vector<std::uint32_t> &depth) {
    for (std::size_t vertex = 0; vertex < graph.vertices(); vertex++) {
        bool has_edge = vertex == source || parent[vertex] == kNoVertex;
        for (std::uint64_t at = graph.begin(vertex); at < graph.end(vertex); at++) {
            const Vertex other = graph.neighbour(at);
            has_edge |= other == parent[vertex];
            const bool both_or_none = (depth[vertex] == kUnreached) == (depth[other] == kUnreached);
            if (!both_or_none || (depth[vertex] != kUnreached && depth[vertex] > depth[other] + 1)) {
                fail(EXIT_WRONG_RESULT, "wrong result: neighbours %zu and %u have the depths %u and %u", vertex, other, depth[vertex],
                     depth[other]);
            }
        }
        if (!has_edge || (depth[vertex] == kUnreached) != (parent[vertex] == kNoVertex)) {
            fail(EXIT_WRONG_RESULT, "wrong result: vertex %zu has the parent %u without an edge or a way to the source", vertex, parent[vertex]);
        }
    }
}

// Distances are shortest if no edge could lower one and each but the source's is that of a neighbour plus the edge; weights are positive.
void verify_distances(const Graph &graph, Vertex source, const std::uint32_t *distance) {
    for (std::size_t vertex = 0; vertex < graph.vertices(); vertex++) {
        const std::uint64_t own = distance[vertex];
        bool has_way = vertex == source ? own == 0 : own == kUnreached;
        for (std::uint64_t at = graph.begin(vertex); at < graph.end(vertex); at++) {
            const std::uint64_t through = std::uint64_t{distance[graph.neighbour(at)]} + graph.weight(at);
            has_way |= through == own;
            if (distance[graph.neighbour(at)] != kUnreached && through < own) {
                fail(EXIT_WRONG_RESULT, "wrong result: vertex %zu is at distance %" PRIu64 ", there is a way of %" PRIu64, vertex, own, through);
            }
        }
        if (!has_way) fail(EXIT_WRONG_RESULT, "wrong result: no way of %" PRIu64 " leads to vertex %zu", own, vertex);
    }
}

// The last step again, serially and by pushing, from what each vertex gave; and the scores have settled: a step takes at least 1 - kDamping off
// the change, which is 2 at most to begin with.
void verify_scores(const Graph &graph, int iterations, const double *score, const double *given) {
    const std::size_t n = graph.vertices();
    std::vector<double> expected(n, (1 - kDamping) / static_cast<double>(n));
    double change = 0;
    for (std::size_t vertex = 0; vertex < n; vertex++) {
        for (std::uint64_t at = graph.begin(vertex); at < graph.end(vertex); at++) expected[graph.neighbour(at)] += kDamping * given[vertex];
        if (graph.degree(vertex)) change += std::fabs(score[vertex] - given[vertex] * static_cast<double>(graph.degree(vertex)));
    }
    for (std::size_t vertex = 0; vertex < n; vertex++) {
        if (!(std::fabs(score[vertex] - expected[vertex]) <= 1e-10 * expected[vertex])) {
            fail(EXIT_WRONG_RESULT, "wrong result: vertex %zu has the score %.15g, not %.15g", vertex, score[vertex], expected[vertex]);
        }
    }
    std::fprintf(stderr, "  the last step changed the scores by %.2g\n", change);
    const double bound = 2 * std::pow(kDamping, iterations - 1);
    if (!(change <= bound)) fail(EXIT_WRONG_RESULT, "wrong result: the last step changed the scores by %g, the bound is %g", change, bound);
}

// A vertex with edges.
Vertex draw_source(const Graph &graph, std::uint64_t seed, std::uint64_t number) {
    rng rng = rng_of(~seed, number);
    for (;;) {
        const Vertex source = rng_below(&rng, static_cast<std::uint32_t>(graph.vertices()));
        if (graph.degree(source)) return source;
    }
}

std::uint64_t traverse(const Options &options, const Graph &graph) {
    const std::size_t n = graph.vertices();
    Vertex *parent = static_cast<Vertex *>(std::aligned_alloc(PAGE_BYTES, whole_pages(n * sizeof *parent)));
    need_memory(parent, n * sizeof *parent);
    std::uint32_t *distance = static_cast<std::uint32_t *>(std::aligned_alloc(PAGE_BYTES, whole_pages(n * sizeof *distance)));
    need_memory(distance, n * sizeof *distance);
    double *score = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, whole_pages(n * sizeof *score)));
    need_memory(score, n * sizeof *score);
    double *given = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, whole_pages(n * sizeof *given)));
    need_memory(given, n * sizeof *given);
    std::uint64_t checksum = 0;
    int pulls = 0, buckets = 0;
    for (std::uint64_t number = 0; number < options.searches; number++) {
        const Vertex source = draw_source(graph, options.common.seed, number);
        // The first and last in full; all by the checksum, which depends on depths and distances alone.
        const bool in_full = number == 0 || number + 2 >= options.searches;
        phase("search");
        pulls += breadth_first(graph, source, parent);
        phase("check");
        const std::vector<std::uint32_t> depth = depths_of(graph, source, parent);
        if (in_full) verify_tree(graph, source, parent, depth);
        checksum = hash_bytes(checksum, depth.data(), n * sizeof depth[0]);
        if (number % 2) continue;
        phase("paths");
        buckets += shortest_paths(graph, source, distance);
        phase("check");
        if (in_full) verify_distances(graph, source, distance);
        checksum = hash_bytes(checksum, distance, n * sizeof *distance);
    }
    phase("rank");
    page_rank(graph, static_cast<int>(options.iterations), score, given);
    phase_verify();
    verify_scores(graph, static_cast<int>(options.iterations), score, given);
    phase(nullptr);
    std::fprintf(stderr, "  %d levels from the bottom up, %d buckets\n", pulls, buckets);
    checksum = hash_bytes(checksum, score, n * sizeof *score);
    std::free(parent);
    std::free(distance);
    std::free(score);
    std::free(given);
    return checksum;
}

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    std::fprintf(stderr, "bfs: %s, %" PRIu64 " threads\n", kVariants[options.common.variant], options.common.threads);
    openmp_start(options.common.threads);
    try {
        phase("build");
        const Graph graph(options.common.seed, static_cast<unsigned>(options.scale), options.degree, static_cast<Placement>(options.common.variant));
        const std::uint64_t checksum = traverse(options, graph);
        std::printf("bfs ok vertices=%zu edges=%" PRIu64 " searches=%" PRIu64 " checksum=%016" PRIx64 "\n", graph.vertices(), graph.edges() / 2,
                    options.searches, checksum);
    } catch (const std::bad_alloc &) {
        fail(EXIT_SYSTEM, "out of memory; choose a smaller --size");
    }
    return 0;
}
