// Breadth-first search that changes direction (Beamer, Asanović, Patterson, SC 2012), shortest paths by delta-stepping (Meyer and Sanders, 2003),
// and PageRank (Brin and Page, 1998): three of the kernels of the GAP suite (Beamer, Asanović, Patterson, arXiv:1508.03619).
#include "kernels.hpp"

#include "options.h"
#include "placement.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

namespace {

// Bounds of the change of direction, as published: upwards when the frontier's edges exceed 1/14 of the unexplored, down again when the
// frontier has less than 1/24 of the vertices.
constexpr std::uint64_t kAlpha = 14, kBeta = 24;
constexpr std::uint32_t kDelta = 32; // width of a bucket of distances

// One thread's vertices on their way to a frontier.
class Buffer {
  public:
    explicit Buffer(Frontier &frontier) : frontier_(frontier) {}
    void add(Vertex vertex) {
        if (count_ == kRoom) flush();
        vertices_[count_++] = vertex;
    }
    void flush() {
        frontier_.append(vertices_, count_);
        count_ = 0;
    }

  private:
    static constexpr std::size_t kRoom = 1024;
    Frontier &frontier_;
    std::size_t count_ = 0;
    Vertex vertices_[kRoom];
};

// One bit per vertex.
class Bitmap {
  public:
    explicit Bitmap(std::size_t vertices) : words_((vertices + 63) / 64) {}
    void clear() { std::fill(words_.begin(), words_.end(), 0); }
    bool get(std::size_t vertex) const { return words_[vertex / 64] >> (vertex % 64) & 1; }
    // By the only thread that writes this vertex's word.
    void set(std::size_t vertex) { words_[vertex / 64] |= std::uint64_t{1} << (vertex % 64); }
    void set_shared(std::size_t vertex) { __atomic_fetch_or(&words_[vertex / 64], std::uint64_t{1} << (vertex % 64), __ATOMIC_RELAXED); }
    void swap(Bitmap &other) { words_.swap(other.words_); }

  private:
    std::vector<std::uint64_t> words_;
};

// Push: every vertex of the frontier claims its unreached neighbours. Returns how many edges those have.
std::uint64_t top_down(const Graph &graph, Vertex *parent, const Frontier &frontier, Frontier &next) {
    std::uint64_t edges = 0;
#pragma omp parallel reduction(+ : edges)
    {
        Buffer buffer(next);
#pragma omp for schedule(dynamic, 64) nowait
        for (std::size_t i = 0; i < frontier.size(); i++) {
            const Vertex from = frontier[i];
            for (std::uint64_t at = graph.begin(from); at < graph.end(from); at++) {
                const Vertex to = graph.neighbour(at);
                Vertex nobody = kNoVertex;
                if (__atomic_load_n(&parent[to], __ATOMIC_RELAXED) != kNoVertex) continue;
                if (!__atomic_compare_exchange_n(&parent[to], &nobody, from, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
                buffer.add(to);
                edges += graph.degree(to);
            }
        }
        buffer.flush();
    }
    return edges;
}

// Pull: every unreached vertex looks for a neighbour in the frontier. Returns how many found one.
std::size_t bottom_up(const Graph &graph, Vertex *parent, const Bitmap &frontier, Bitmap &next) {
    std::size_t found = 0;
    next.clear();
    // Pieces are whole words of the bitmap.
#pragma omp parallel for schedule(dynamic, 1024) reduction(+ : found)
    for (std::size_t vertex = 0; vertex < graph.vertices(); vertex++) {
        if (parent[vertex] != kNoVertex) continue;
        for (std::uint64_t at = graph.begin(vertex); at < graph.end(vertex); at++) {
            if (!frontier.get(graph.neighbour(at))) continue;
            parent[vertex] = graph.neighbour(at);
            next.set(vertex);
            found++;
            break;
        }
    }
    return found;
}

void to_bitmap(const Frontier &frontier, Bitmap &bitmap) {
    bitmap.clear();
#pragma omp parallel for schedule(static)
    for (std::size_t i = 0; i < frontier.size(); i++) bitmap.set_shared(frontier[i]);
}

void to_frontier(const Graph &graph, const Bitmap &bitmap, Frontier &frontier) {
    frontier.clear();
#pragma omp parallel
    {
        Buffer buffer(frontier);
#pragma omp for schedule(static) nowait
        for (std::size_t vertex = 0; vertex < graph.vertices(); vertex++) {
            if (bitmap.get(vertex)) buffer.add(static_cast<Vertex>(vertex));
        }
        buffer.flush();
    }
}

// Lowers a distance; false if it was as low already.
bool lower(std::uint32_t *distance, std::uint32_t candidate) {
    std::uint32_t before = __atomic_load_n(distance, __ATOMIC_RELAXED);
    while (candidate < before) {
        if (__atomic_compare_exchange_n(distance, &before, candidate, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return true;
    }
    return false;
}

// One thread's vertices by bucket of distance.
using Buckets = std::vector<std::vector<Vertex>>;

void relax(const Graph &graph, Vertex from, std::uint32_t *distance, Buckets &own) {
    const std::uint32_t base = __atomic_load_n(&distance[from], __ATOMIC_RELAXED);
    for (std::uint64_t at = graph.begin(from); at < graph.end(from); at++) {
        const std::uint32_t candidate = base + graph.weight(at);
        if (!lower(&distance[graph.neighbour(at)], candidate)) continue;
        const std::size_t bucket = candidate / kDelta;
        if (bucket >= own.size()) own.resize(bucket + 1);
        own[bucket].push_back(graph.neighbour(at));
    }
}

} // namespace

Frontier::Frontier(std::size_t room) {
    const std::size_t bytes = whole_pages(room * sizeof *queue_);
    queue_ = static_cast<Vertex *>(std::aligned_alloc(PAGE_BYTES, bytes));
    need_memory(queue_, bytes);
}

Frontier::~Frontier() {
    std::free(queue_);
}

void Frontier::append(const Vertex *vertices, std::size_t count) {
    const std::size_t at = __atomic_fetch_add(&size_, count, __ATOMIC_RELAXED);
    if (count) std::memcpy(queue_ + at, vertices, count * sizeof *vertices);
}

int breadth_first(const Graph &graph, Vertex source, Vertex *parent) {
    const std::size_t n = graph.vertices();
#pragma omp parallel for schedule(static)
    for (std::size_t vertex = 0; vertex < n; vertex++) parent[vertex] = kNoVertex;
    parent[source] = source;
    auto frontier = std::make_unique<Frontier>(n), next = std::make_unique<Frontier>(n);
    Bitmap now(n), later(n);
    frontier->append(&source, 1);
    std::uint64_t unexplored = graph.edges(), edges = graph.degree(source);
    int pulls = 0;
    while (frontier->size() > 0) {
        if (edges > unexplored / kAlpha) {
            to_bitmap(*frontier, now);
            std::size_t before, found = frontier->size();
            do {
                before = found;
                found = bottom_up(graph, parent, now, later);
                now.swap(later);
                pulls++;
            } while (found >= before || found > n / kBeta);
            to_frontier(graph, now, *frontier);
            edges = 1; // few are left: down from here on
            continue;
        }
        unexplored -= std::min(edges, unexplored);
        next->clear();
        edges = top_down(graph, parent, *frontier, *next);
        frontier.swap(next);
    }
    return pulls;
}

int shortest_paths(const Graph &graph, Vertex source, std::uint32_t *distance) {
    const std::size_t n = graph.vertices();
#pragma omp parallel for schedule(static)
    for (std::size_t vertex = 0; vertex < n; vertex++) distance[vertex] = kUnreached;
    distance[source] = 0;
    // A vertex enters a bucket each time that its distance falls within it. Pages that are not needed are never touched.
    Frontier frontier(n * kDelta);
    frontier.append(&source, 1);
    std::size_t bucket = 0, lowest = 0;
    int visited = 0;
    const std::size_t none = ~std::size_t{0};
#pragma omp parallel
    {
        Buckets own;
        while (bucket != none) {
#pragma omp for schedule(dynamic, 64)
            for (std::size_t i = 0; i < frontier.size(); i++) {
                // Vertices that an earlier bucket has dealt with since are left out.
                if (__atomic_load_n(&distance[frontier[i]], __ATOMIC_RELAXED) >= kDelta * bucket) relax(graph, frontier[i], distance, own);
            }
#pragma omp single
            {
                frontier.clear();
                lowest = none;
                visited++;
            }
            std::size_t mine = bucket;
            while (mine < own.size() && own[mine].empty()) mine++;
#pragma omp critical
            if (mine < own.size()) lowest = std::min(lowest, mine);
#pragma omp barrier
            if (lowest < own.size()) {
                frontier.append(own[lowest].data(), own[lowest].size());
                own[lowest].clear();
            }
#pragma omp barrier
#pragma omp single
            bucket = lowest;
        }
    }
    return visited;
}

void page_rank(const Graph &graph, int iterations, double *score, double *given) {
    const std::size_t n = graph.vertices();
    const double start = 1.0 / static_cast<double>(n), base = (1 - kDamping) / static_cast<double>(n);
#pragma omp parallel
    {
#pragma omp for schedule(static)
        for (std::size_t vertex = 0; vertex < n; vertex++) score[vertex] = start;
        for (int iteration = 0; iteration < iterations; iteration++) {
#pragma omp for schedule(static)
            for (std::size_t vertex = 0; vertex < n; vertex++) {
                given[vertex] = graph.degree(vertex) ? score[vertex] / static_cast<double>(graph.degree(vertex)) : 0;
            }
#pragma omp for schedule(dynamic, 1024)
            for (std::size_t vertex = 0; vertex < n; vertex++) {
                double sum = 0;
                for (std::uint64_t at = graph.begin(vertex); at < graph.end(vertex); at++) sum += given[graph.neighbour(at)];
                score[vertex] = base + kDamping * sum;
            }
        }
    }
}
