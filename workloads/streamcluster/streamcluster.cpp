// Online k-median clustering of a stream of points, chunk by chunk (the algorithm is in local_search.hpp).
//
// Naive placement: the main thread fills `block` and `points.p`, so first touch puts both on its node, and the threads of all
// other nodes read them from there in every evaluation.
#include "local_search.hpp"
#include "options.h"
#include "phase.h"
#include "placement.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>

namespace {

enum Variant { kNaive, kInterleaved, kPartitioned };
const char *const kVariants[] = {"naive", "interleaved", "partitioned", nullptr};

struct Options {
    common_options common = COMMON_OPTIONS_DEFAULT;
    std::uint64_t chunk = 0, chunks = 0, dim = 0, kmin = 0, kmax = 0, candidates = 0;
};

struct Preset {
    std::uint64_t chunk, chunks, dim, kmin, kmax, candidates;
};
// `small` has a block of 64 MiB: a quarter of it, what one of four nodes reads per pass, exceeds L3 and the private caches together. `large` is PARSEC's
// native input: a million points in chunks of 200,000, and as many candidates per round as it tries (3 k ln k at its 10 centres).
const Preset kPresets[] = {
    {4096, 3, 32, 4, 8, 20},
    {131072, 2, 128, 8, 16, 30},
    {131072, 8, 128, 10, 20, 70},
    {200000, 5, 128, 10, 20, 70},
};

void set_unless_given(std::uint64_t &value, std::uint64_t preset) {
    if (!value) value = preset;
}

Options parse(int argc, char **argv) {
    Options options;
    const option_spec specs[] = {
        option_size(&options.common),
        option_choice("variant", &options.common.variant, kVariants, "where the pages of the points go"),
        option_threads(&options.common),
        option_seed(&options.common),
        option_number("chunk", &options.chunk, 64, 1u << 24, "points per chunk of the stream"),
        option_number("chunks", &options.chunks, 1, 1u << 16, "chunks in the stream"),
        option_number("dim", &options.dim, 4, 4096, "dimensions of a point, a multiple of 4"),
        option_number("kmin", &options.kmin, 1, 1000, "fewest centres"),
        option_number("kmax", &options.kmax, 1, 1000, "most centres"),
        option_number("candidates", &options.candidates, 1, 1000000, "centres tried per round of the search"),
    };
    const program program = {"streamcluster", "online k-median clustering of a stream of points", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const Preset &preset = kPresets[options.common.size];
    set_unless_given(options.chunk, preset.chunk);
    set_unless_given(options.chunks, preset.chunks);
    set_unless_given(options.dim, preset.dim);
    set_unless_given(options.kmin, preset.kmin);
    set_unless_given(options.kmax, preset.kmax > options.kmin ? preset.kmax : 2 * options.kmin);
    set_unless_given(options.candidates, preset.candidates);
    if (options.dim % 4) fail(EXIT_USAGE, "--dim must be a multiple of 4, not %" PRIu64, options.dim);
    if (options.kmin > options.kmax) {
        fail(EXIT_USAGE, "--kmin %" PRIu64 " exceeds --kmax %" PRIu64, options.kmin, options.kmax);
    }
    if (options.kmax * 4 > options.chunk) fail(EXIT_USAGE, "--chunk must be at least four times --kmax");
    return options;
}

// The pages' nodes are decided here, before the main thread writes the first point.
void place(Team &team, int variant, void *memory, std::size_t bytes) {
    if (variant == kInterleaved && !placement_interleave(memory, bytes)) touch_striped(team, memory, bytes);
    if (variant == kPartitioned) {
        team.run([&](int member) {
            // The same parts as the search works on, up to the rounding of slices.
            const Range mine = part_of(bytes, static_cast<std::size_t>(member), static_cast<std::size_t>(team.size()));
            volatile char *start = static_cast<volatile char *>(memory);
            for (std::size_t at = (mine.begin + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; at < mine.end; at += PAGE_BYTES) start[at] = 0;
        });
    }
}

// The medians of all chunks so far, weighted by the points that they serve.
struct Centers {
    explicit Centers(int dim) : dim(dim) {}
    std::size_t size() const { return weights.size(); }
    void add_from(const Points &points, const std::vector<std::size_t> &open) {
        std::vector<double> served(points.num, 0.0);
        for (std::size_t i = 0; i < points.num; i++) {
            served[static_cast<std::size_t>(points.p[i].assign)] += static_cast<double>(points.p[i].weight);
        }
        for (std::size_t center : open) {
            coords.insert(coords.end(), points.p[center].coord, points.p[center].coord + dim);
            weights.push_back(static_cast<float>(served[center]));
        }
    }
    int dim;
    std::vector<float> coords;
    std::vector<float> weights;
};

// Cost of serving every `step`th point of the stream by the nearest of the centres.
double sampled_cost(const Mixture &mixture, std::uint64_t stream_points, const float *centers, std::size_t count, int dim) {
    constexpr std::uint64_t kSamples = 2048;
    std::vector<float> coord(static_cast<std::size_t>(dim));
    double total = 0;
    const std::uint64_t step = stream_points / kSamples + 1;
    for (std::uint64_t n = 0; n < stream_points; n += step) {
        mixture.draw(n, coord.data());
        double best = -1;
        for (std::size_t c = 0; c < count; c++) {
            double distance = 0;
            for (int d = 0; d < dim; d++) {
                const double difference = static_cast<double>(coord[static_cast<std::size_t>(d)]) -
                                          static_cast<double>(centers[c * static_cast<std::size_t>(dim) + static_cast<std::size_t>(d)]);
                distance += difference * difference;
            }
            if (best < 0 || distance < best) best = distance;
        }
        total += best;
    }
    return total;
}

void must_hold(const std::string &problem) {
    if (!problem.empty()) fail(EXIT_WRONG_RESULT, "wrong result: %s", problem.c_str());
}

// Clusters the whole stream; returns the final centres and, in `evaluations`, the work done.
Centers cluster_stream(Team &team, const Options &options, const Mixture &mixture, std::uint64_t &evaluations) {
    const int dim = static_cast<int>(options.dim);
    const SearchLimits limits = {options.kmin, options.kmax, options.candidates, 4};
    const std::size_t block_bytes = whole_pages(options.chunk * options.dim * sizeof(float));
    float *block = static_cast<float *>(std::aligned_alloc(PAGE_BYTES, block_bytes));
    need_memory(block, block_bytes);
    Points points = {options.chunk, dim, nullptr};
    const std::size_t p_bytes = whole_pages(options.chunk * sizeof(Point));
    points.p = static_cast<Point *>(std::aligned_alloc(PAGE_BYTES, p_bytes));
    need_memory(points.p, p_bytes);
    place(team, options.common.variant, block, block_bytes);
    if (options.common.variant == kPartitioned) place(team, kPartitioned, points.p, p_bytes);

    Centers medians(dim);
    {
        LocalSearch search(team, points, options.chunk, limits, options.common.seed);
        for (std::uint64_t chunk = 0; chunk < options.chunks; chunk++) {
            phase("read");
            for (std::size_t i = 0; i < options.chunk; i++) {
                float *coord = block + i * options.dim;
                mixture.draw(chunk * options.chunk + i, coord);
                points.p[i] = {coord, 0, 1.0f, 0.0f};
            }
            phase("search");
            search.cluster();
            must_hold(search.verify());
            medians.add_from(points, search.centers());
        }
        evaluations = search.evaluations();
    }
    std::free(block);
    std::free(points.p);

    phase("medians");
    Points all = {medians.size(), dim, nullptr};
    std::vector<Point> all_points(medians.size());
    for (std::size_t i = 0; i < medians.size(); i++) {
        all_points[i] = {&medians.coords[i * options.dim], 0, medians.weights[i], 0.0f};
    }
    all.p = all_points.data();
    LocalSearch search(team, all, medians.size(), limits, options.common.seed + 1);
    search.cluster();
    must_hold(search.verify());
    evaluations += search.evaluations();
    Centers result(dim);
    result.add_from(all, search.centers());
    return result;
}

// Independent of the search: the weights add up to the stream, and the centres serve it nearly as well as the true ones.
void verify(const Options &options, const Mixture &mixture, const Centers &result) {
    const std::uint64_t stream_points = options.chunk * options.chunks;
    double weight = 0;
    for (float w : result.weights) weight += static_cast<double>(w);
    if (weight < 0.9999 * static_cast<double>(stream_points) || weight > 1.0001 * static_cast<double>(stream_points)) {
        fail(EXIT_WRONG_RESULT, "wrong result: the centres serve %.0f points of %" PRIu64, weight, stream_points);
    }
    if (result.size() < options.kmin || result.size() > options.kmax) {
        fail(EXIT_WRONG_RESULT, "wrong result: %zu centres, wanted %" PRIu64 " to %" PRIu64, result.size(), options.kmin, options.kmax);
    }
    const double found = sampled_cost(mixture, stream_points, result.coords.data(), result.size(), result.dim);
    const double truth =
        sampled_cost(mixture, stream_points, mixture.centre(0), static_cast<std::size_t>(mixture.clusters()), result.dim);
    // A member of a cluster serves it at twice the cost of its mean; the rest is what the search may lose.
    const double bound = 2.5 * truth;
    if (found > bound) fail(EXIT_WRONG_RESULT, "wrong result: sampled cost %g, the bound is %g", found, bound);
    std::fprintf(stderr, "  sampled cost %.2f times that of the true centres\n", found / truth);
}

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    const Mixture mixture(options.common.seed, static_cast<int>(options.kmin), static_cast<int>(options.dim));
    std::fprintf(stderr, "streamcluster: %s, %" PRIu64 " threads\n", kVariants[options.common.variant], options.common.threads);
    std::uint64_t evaluations = 0;
    try {
        Team team(static_cast<int>(options.common.threads));
        const Centers result = cluster_stream(team, options, mixture, evaluations);
        phase_verify();
        verify(options, mixture, result);
        phase(nullptr);
        std::uint64_t checksum = hash_bytes(0, result.coords.data(), result.coords.size() * sizeof(float));
        checksum = hash_bytes(checksum, result.weights.data(), result.weights.size() * sizeof(float));
        std::printf("streamcluster ok points=%" PRIu64 " dim=%" PRIu64 " centers=%zu evaluations=%" PRIu64 " checksum=%016" PRIx64 "\n",
                    options.chunk * options.chunks, options.dim, result.size(), evaluations, checksum);
    } catch (const std::bad_alloc &) {
        fail(EXIT_SYSTEM, "out of memory; choose a smaller --size");
    }
    return 0;
}
