// Principal component analysis by MapReduce, as in the suites Phoenix (Ranger and others, HPCA 2007) and Metis (Mao and others, MIT-CSAIL-TR-2010-020):
// a first map gives the mean of each row of a matrix, a second the covariance of each pair of rows; then the leading components.
//
// Naive: the main thread reads (here: generates) the matrix, so first touch puts all of it on its node, and every map task reads all of it
// from there. Interleaving lowers the share of local accesses and speeds the program up (Dashti et al., ASPLOS 2013).
#include "mapreduce.hpp"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "random.h"
#include "team.hpp"

#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {

enum Variant { kNaive, kInterleaved };
const char *const kVariants[] = {"naive", "interleaved", nullptr};
constexpr int kComponents = 3;

struct Options {
    common_options common = COMMON_OPTIONS_DEFAULT;
    std::uint64_t rows = 0, columns = 0;
};

struct Preset {
    std::uint64_t rows, columns;
};
// `small`: 32 MiB, read once for each row.
const Preset kPresets[] = {{48, 512}, {512, 16384}, {1024, 32768}, {2048, 65536}};

Options parse(int argc, char **argv) {
    Options options;
    const option_spec specs[] = {
        option_size(&options.common),
        option_choice("variant", &options.common.variant, kVariants, "where the pages of the matrix go"),
        option_threads(&options.common),
        option_seed(&options.common),
        option_number("rows", &options.rows, 8, 1u << 14, "rows of the matrix: variables"),
        option_number("columns", &options.columns, 64, 1u << 20, "columns of the matrix: observations"),
    };
    const program program = {"pca", "principal component analysis by MapReduce", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const Preset &preset = kPresets[options.common.size];
    if (!options.rows) options.rows = preset.rows;
    if (!options.columns) options.columns = preset.columns;
    return options;
}

// Row after row of whole numbers.
struct Data {
    std::size_t rows, columns;
    std::int32_t *matrix;
    const std::int32_t *row(std::size_t i) const { return matrix + i * columns; }
};

// The hidden factors: how strongly variable `row` follows factor `factor`, in -1..1, and the factors' strengths, far apart.
constexpr double kStrengths[kComponents] = {30, 18, 10};
double loading(std::uint64_t seed, int factor, std::size_t row) {
    rng rng = rng_of(seed + static_cast<std::uint64_t>(factor), row);
    return rng_unit(&rng) * 2 - 1;
}

// Each observation has a value of each factor; each variable follows the factors by its loadings, with noise of +-16.
void generate(const Options &options, Data &data) {
    std::vector<float> factors(kComponents * data.columns);
    for (std::size_t i = 0; i < factors.size(); i++) {
        rng rng = rng_of(~options.common.seed, i);
        factors[i] = static_cast<float>(rng_unit(&rng) * 2 - 1);
    }
    for (std::size_t row = 0; row < data.rows; row++) {
        float weights[kComponents];
        for (int k = 0; k < kComponents; k++) weights[k] = static_cast<float>(kStrengths[k] * loading(options.common.seed, k, row));
        rng rng = rng_of(options.common.seed, ~row);
        for (std::size_t column = 0; column < data.columns; column++) {
            float value = 100;
            for (int k = 0; k < kComponents; k++) value += weights[k] * factors[static_cast<std::size_t>(k) * data.columns + column];
            data.matrix[row * data.columns + column] = static_cast<std::int32_t>(value) + static_cast<std::int32_t>(rng_below(&rng, 33)) - 16;
        }
    }
}

// Sums of the products of the deviations from the rows' means, columns times the covariance: whole numbers, so that the order does not matter.
struct Covariance {
    std::size_t rows;
    std::vector<std::int64_t> means; // rounded down
    std::vector<std::int64_t> sums;  // rows x rows
    double at(std::size_t i, std::size_t j) const { return static_cast<double>(sums[i * rows + j]); }
};

void compute(Team &team, const Data &data, Covariance &result) {
    MapReduce<std::int64_t> job(team);
    const auto columns = static_cast<std::int64_t>(data.columns);
    phase("means");
    job.run(
        data.rows,
        [&](std::size_t i, const auto &emit) {
            const std::int32_t *row = data.row(i);
            std::int64_t sum = 0;
            for (std::size_t column = 0; column < data.columns; column++) sum += row[column];
            emit(i, sum / columns);
        },
        [&](std::uint64_t key, std::int64_t value) { result.means[key] = value; });
    phase("covariance");
    job.run(
        data.rows,
        [&](std::size_t i, const auto &emit) {
            const std::int32_t *left = data.row(i);
            const auto left_mean = static_cast<std::int32_t>(result.means[i]);
            for (std::size_t j = i; j < data.rows; j++) {
                const std::int32_t *right = data.row(j);
                const auto right_mean = static_cast<std::int32_t>(result.means[j]);
                std::int64_t sum = 0;
                for (std::size_t column = 0; column < data.columns; column++) {
                    sum += (left[column] - left_mean) * (right[column] - right_mean);
                }
                emit(i * data.rows + j, sum);
            }
        },
        [&](std::uint64_t key, std::int64_t value) {
            result.sums[key] = value;
            result.sums[key % data.rows * data.rows + key / data.rows] = value;
        });
}

double dot(const std::vector<double> &a, const std::vector<double> &b) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); i++) sum += a[i] * b[i];
    return sum;
}

// A times `vector`.
std::vector<double> multiply(const Covariance &a, const std::vector<double> &vector) {
    std::vector<double> product(a.rows, 0.0);
    for (std::size_t i = 0; i < a.rows; i++) {
        for (std::size_t j = 0; j < a.rows; j++) product[i] += a.at(i, j) * vector[j];
    }
    return product;
}

struct Component {
    double value; // columns times the variance along it
    std::vector<double> direction;
};

// Takes out what lies along `found`, and scales to length 1.
void normalise(std::vector<double> &vector, const std::vector<Component> &found) {
    for (const Component &other : found) {
        const double along = dot(vector, other.direction);
        for (std::size_t i = 0; i < vector.size(); i++) vector[i] -= along * other.direction[i];
    }
    const double scale = 1 / std::sqrt(dot(vector, vector));
    for (double &x : vector) x *= scale;
}

// The leading eigenvectors by the power method, each kept orthogonal to those before it.
std::vector<Component> leading_components(const Covariance &a) {
    constexpr int kStepsMax = 300;
    constexpr double kPrecision = 1e-14;
    phase("components");
    std::vector<Component> found;
    for (int k = 0; k < kComponents; k++) {
        Component component = {0, std::vector<double>(a.rows)};
        for (std::size_t i = 0; i < a.rows; i++) {
            rng rng = rng_of(static_cast<std::uint64_t>(k), i);
            component.direction[i] = rng_unit(&rng) - 0.5;
        }
        normalise(component.direction, found);
        for (int step = 0; step < kStepsMax; step++) {
            std::vector<double> product = multiply(a, component.direction);
            const double before = component.value;
            component.value = dot(component.direction, product);
            if (std::fabs(component.value - before) <= kPrecision * component.value) break;
            component.direction.swap(product);
            normalise(component.direction, found);
        }
        found.push_back(std::move(component));
    }
    return found;
}

// The covariances by another formula, sum(xy) - sum(x)*mean(y) - sum(y)*mean(x) + columns*mean(x)*mean(y), for all pairs of a few rows with
// every row, from right to left.
void verify_covariance(const Data &data, const Covariance &result) {
    const auto columns = static_cast<std::int64_t>(data.columns);
    const std::size_t samples[] = {0, data.rows / 3, data.rows / 2, data.rows - 1};
    for (std::size_t i : samples) {
        for (std::size_t j = 0; j < data.rows; j++) {
            std::int64_t xy = 0, x = 0, y = 0;
            for (std::size_t column = data.columns; column-- > 0;) {
                const std::int64_t left = data.row(i)[column], right = data.row(j)[column];
                xy += left * right;
                x += left;
                y += right;
            }
            const std::int64_t mean_x = x / columns, mean_y = y / columns;
            const std::int64_t expected = xy - x * mean_y - y * mean_x + columns * mean_x * mean_y;
            if (result.sums[i * data.rows + j] != expected) {
                fail(EXIT_WRONG_RESULT, "wrong result: rows %zu and %zu give %" PRId64 ", not %" PRId64, i, j, result.sums[i * data.rows + j], expected);
            }
        }
    }
}

// Each component is an eigenvector, and together they span what the hidden factors span.
void verify_components(const Options &options, const Covariance &a, const std::vector<Component> &components) {
    for (const Component &component : components) {
        const std::vector<double> product = multiply(a, component.direction);
        double error = 0;
        for (std::size_t i = 0; i < a.rows; i++) {
            const double difference = product[i] - component.value * component.direction[i];
            error += difference * difference;
        }
        const double relative = std::sqrt(error) / component.value;
        if (!(relative <= 1e-4)) fail(EXIT_WRONG_RESULT, "wrong result: a component is off by %g of its size", relative);
    }
    for (int k = 0; k < kComponents; k++) {
        std::vector<double> factor(a.rows);
        for (std::size_t i = 0; i < a.rows; i++) factor[i] = loading(options.common.seed, k, i);
        double within = 0;
        for (const Component &component : components) within += std::pow(dot(factor, component.direction), 2) / dot(factor, factor);
        std::fprintf(stderr, "  hidden factor %d: %.1f %% found\n", k, 100 * within);
        // Fewer variables hardly tell the weakest factor from the noise.
        const bool enough = a.rows >= 32 && options.columns >= 256;
        if (enough && within < 0.8) fail(EXIT_WRONG_RESULT, "wrong result: hidden factor %d was not found (%.2f)", k, within);
    }
}

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    std::fprintf(stderr, "pca: %s, %" PRIu64 " threads\n", kVariants[options.common.variant], options.common.threads);
    try {
        Team team(static_cast<int>(options.common.threads));
        phase("read");
        Data data = {options.rows, options.columns, nullptr};
        const std::size_t bytes = whole_pages(data.rows * data.columns * sizeof(std::int32_t));
        std::int32_t *matrix = static_cast<std::int32_t *>(std::aligned_alloc(PAGE_BYTES, bytes));
        need_memory(matrix, bytes);
        if (options.common.variant == kInterleaved && !placement_interleave(matrix, bytes)) touch_striped(team, matrix, bytes);
        data.matrix = matrix;
        generate(options, data);
        Covariance covariance = {data.rows, std::vector<std::int64_t>(data.rows), std::vector<std::int64_t>(data.rows * data.rows)};
        compute(team, data, covariance);
        const std::vector<Component> components = leading_components(covariance);
        phase_verify();
        verify_covariance(data, covariance);
        verify_components(options, covariance, components);
        phase(nullptr);
        const std::uint64_t checksum = hash_bytes(0, covariance.sums.data(), covariance.sums.size() * sizeof(std::int64_t));
        std::printf("pca ok rows=%zu columns=%zu variance=%.9e checksum=%016" PRIx64 "\n", data.rows, data.columns,
                    components[0].value / static_cast<double>(data.columns), checksum);
        std::free(matrix);
    } catch (const std::bad_alloc &) {
        fail(EXIT_SYSTEM, "out of memory; choose a smaller --size");
    }
    return 0;
}
