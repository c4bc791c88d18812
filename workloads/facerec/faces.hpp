// Matrices, and the synthetic people whose faces are recognised.
#ifndef FACEREC_FACES_HPP
#define FACEREC_FACES_HPP

#include "random.h"

#include <cstddef>
#include <cstdint>
#include <vector>

// 130 x 150 pixels; 100 eigenfaces of that size in double precision make a matrix of 15 MB.
constexpr int kWidth = 130;
constexpr int kHeight = 150;
constexpr std::size_t kPixels = static_cast<std::size_t>(kWidth * kHeight);

// A dense row-major matrix, aligned to pages, not initialised: the thread that writes first decides its pages' nodes.
class Matrix {
  public:
    Matrix() = default;
    // Takes over memory from std::aligned_alloc; the caller allocates, so that each kind of matrix has its own source line.
    Matrix(double *data, std::size_t rows, std::size_t columns) : data_(data), rows_(rows), columns_(columns) {}
    Matrix(Matrix &&other) noexcept;
    Matrix &operator=(Matrix &&other) noexcept;
    ~Matrix();

    static std::size_t bytes(std::size_t rows, std::size_t columns);
    double *row(std::size_t r) { return data_ + r * columns_; }
    const double *row(std::size_t r) const { return data_ + r * columns_; }
    double *data() { return data_; }
    const double *data() const { return data_; }
    std::size_t rows() const { return rows_; }
    std::size_t columns() const { return columns_; }
    std::size_t size() const { return rows_ * columns_; }

  private:
    double *data_ = nullptr;
    std::size_t rows_ = 0, columns_ = 0;
};

// `subjects` people. An image of one is a fixed sum of smooth patterns, seen under its own light, contrast and camera noise;
// image n of a subject is a function of (seed, subject, n) alone.
class Population {
  public:
    Population(std::uint64_t seed, std::size_t subjects);
    std::size_t subjects() const { return features_.size() / kPatterns; }
    // Writes kPixels pixels.
    void photograph(std::size_t subject, std::uint64_t image, double *pixels) const;

  private:
    static constexpr std::size_t kPatterns = 24;
    std::uint64_t seed_;
    std::vector<double> features_;           // subject x pattern: amplitude
    std::vector<double> across_, down_;      // pattern x column, pattern x row: the patterns are separable
};

#endif
