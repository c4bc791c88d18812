// Matrices and synthetic photographs.
#include "faces.hpp"

#include <cmath>
#include <cstdlib>
#include <utility>

Matrix::Matrix(Matrix &&other) noexcept
    : data_(std::exchange(other.data_, nullptr)), rows_(std::exchange(other.rows_, 0)), columns_(std::exchange(other.columns_, 0)) {}

Matrix &Matrix::operator=(Matrix &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(rows_, other.rows_);
    std::swap(columns_, other.columns_);
    return *this;
}

Matrix::~Matrix() {
    std::free(data_);
}

std::size_t Matrix::bytes(std::size_t rows, std::size_t columns) {
    constexpr std::size_t kPage = 4096;
    return (rows * columns * sizeof(double) + kPage - 1) / kPage * kPage;
}

Population::Population(std::uint64_t seed, std::size_t subjects)
    : seed_(seed), features_(subjects * kPatterns), across_(kPatterns * kWidth), down_(kPatterns * kHeight) {
    rng rng = rng_of(seed, ~0ull);
    for (double &feature : features_) feature = rng_unit(&rng) * 2 - 1;
    constexpr double kPi = 3.14159265358979323846;
    for (std::size_t pattern = 0; pattern < kPatterns; pattern++) {
        // One to five half waves over the face in each direction.
        const double waves_across = 1 + static_cast<double>(pattern % 5);
        const double waves_down = 1 + static_cast<double>(pattern / 5);
        const double phase = rng_unit(&rng) * kPi;
        for (int x = 0; x < kWidth; x++) across_[pattern * kWidth + static_cast<std::size_t>(x)] = std::cos(waves_across * kPi * x / kWidth + phase);
        for (int y = 0; y < kHeight; y++) down_[pattern * kHeight + static_cast<std::size_t>(y)] = std::cos(waves_down * kPi * y / kHeight + phase);
    }
}

void Population::photograph(std::size_t subject, std::uint64_t image, double *pixels) const {
    rng rng = rng_of(seed_, subject << 32 | image);
    const double *feature = &features_[subject * kPatterns];
    const double contrast = 0.9 + 0.2 * rng_unit(&rng);
    const double light = 0.2 * rng_unit(&rng) - 0.1;
    const double slope_across = (rng_unit(&rng) - 0.5) * 0.6 / kWidth, slope_down = (rng_unit(&rng) - 0.5) * 0.6 / kHeight;
    for (std::size_t y = 0; y < kHeight; y++) {
        double *line = pixels + y * kWidth;
        const double base = light + slope_down * static_cast<double>(y);
        for (std::size_t x = 0; x < kWidth; x++) {
            const double noise = static_cast<double>(rng_next(&rng) >> 48) * (0.3 / 65536) - 0.15;
            line[x] = base + slope_across * static_cast<double>(x) + noise;
        }
        for (std::size_t pattern = 0; pattern < kPatterns; pattern++) {
            const double amplitude = contrast * feature[pattern] * down_[pattern * kHeight + y];
            const double *wave = &across_[pattern * kWidth];
            for (std::size_t x = 0; x < kWidth; x++) line[x] += amplitude * wave[x];
        }
    }
}
