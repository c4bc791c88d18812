// Principal components of the training images.
#include "eigenfaces.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

double dot(const double *a, const double *b, std::size_t n) {
    double even = 0, odd = 0;
    std::size_t i = 0;
    for (; i + 2 <= n; i += 2) {
        even += a[i] * b[i];
        odd += a[i + 1] * b[i + 1];
    }
    if (i < n) even += a[i] * b[i];
    return even + odd;
}

namespace {

// Rotates rows and columns p and q so that a(p, q) becomes 0.
void rotate(Matrix &a, Matrix &vectors, std::size_t p, std::size_t q) {
    const std::size_t n = a.rows();
    const double apq = a.row(p)[q];
    const double theta = (a.row(q)[q] - a.row(p)[p]) / (2 * apq);
    const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
    const double c = 1 / std::sqrt(t * t + 1), s = t * c;
    for (std::size_t k = 0; k < n; k++) {
        double *row = a.row(k);
        const double kp = row[p], kq = row[q];
        row[p] = c * kp - s * kq;
        row[q] = s * kp + c * kq;
    }
    for (Matrix *matrix : {&a, &vectors}) {
        double *row_p = matrix->row(p), *row_q = matrix->row(q);
        for (std::size_t k = 0; k < n; k++) {
            const double pk = row_p[k], qk = row_q[k];
            row_p[k] = c * pk - s * qk;
            row_q[k] = s * pk + c * qk;
        }
    }
}

double off_diagonal(const Matrix &a) {
    double sum = 0;
    for (std::size_t r = 0; r < a.rows(); r++) {
        for (std::size_t c = 0; c < r; c++) sum += a.row(r)[c] * a.row(r)[c];
    }
    return sum;
}

} // namespace

void eigen_symmetric(Matrix &a, std::vector<double> &values, Matrix &vectors) {
    const std::size_t n = a.rows();
    std::fill(vectors.data(), vectors.data() + vectors.size(), 0.0);
    for (std::size_t i = 0; i < n; i++) vectors.row(i)[i] = 1;
    double diagonal = 0;
    for (std::size_t i = 0; i < n; i++) diagonal += a.row(i)[i] * a.row(i)[i];
    const double done = diagonal * 1e-26;
    for (int sweep = 0; sweep < 50 && off_diagonal(a) > done; sweep++) {
        for (std::size_t p = 0; p < n; p++) {
            for (std::size_t q = p + 1; q < n; q++) {
                if (std::abs(a.row(p)[q]) > 1e-300) rotate(a, vectors, p, q);
            }
        }
    }
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) { return a.row(x)[x] > a.row(y)[y]; });
    values.resize(n);
    std::vector<double> sorted(vectors.size());
    for (std::size_t i = 0; i < n; i++) {
        values[i] = a.row(order[i])[order[i]];
        std::copy_n(vectors.row(order[i]), n, &sorted[i * n]);
    }
    std::copy(sorted.begin(), sorted.end(), vectors.data());
}

void mean_of(const std::vector<Matrix> &images, double *mean) {
    std::fill(mean, mean + kPixels, 0.0);
    for (const Matrix &image : images) {
        for (std::size_t i = 0; i < kPixels; i++) mean[i] += image.data()[i];
    }
    for (std::size_t i = 0; i < kPixels; i++) mean[i] /= static_cast<double>(images.size());
}

namespace {
constexpr std::size_t kBlockPixels = 32; // of 120 images: 30 KiB

// Copies one block of pixels of all images, less the mean: images x kBlockPixels.
std::size_t centred_block(const std::vector<Matrix> &images, const double *mean, std::size_t first, double *block) {
    const std::size_t pixels = std::min(kBlockPixels, kPixels - first);
    for (std::size_t image = 0; image < images.size(); image++) {
        const double *from = images[image].data() + first;
        for (std::size_t i = 0; i < pixels; i++) block[image * kBlockPixels + i] = from[i] - mean[first + i];
    }
    return pixels;
}
} // namespace

void gram_of(const std::vector<Matrix> &images, const double *mean, Matrix &gram) {
    std::fill(gram.data(), gram.data() + gram.size(), 0.0);
    std::vector<double> block(images.size() * kBlockPixels);
    for (std::size_t first = 0; first < kPixels; first += kBlockPixels) {
        const std::size_t pixels = centred_block(images, mean, first, block.data());
        for (std::size_t r = 0; r < images.size(); r++) {
            for (std::size_t c = 0; c <= r; c++) gram.row(r)[c] += dot(&block[r * kBlockPixels], &block[c * kBlockPixels], pixels);
        }
    }
    for (std::size_t r = 0; r < images.size(); r++) {
        for (std::size_t c = 0; c < r; c++) gram.row(c)[r] = gram.row(r)[c];
    }
}

void basis_of(const std::vector<Matrix> &images, const double *mean, const std::vector<double> &values, const Matrix &vectors, Matrix &basis) {
    std::vector<double> block(images.size() * kBlockPixels);
    for (std::size_t first = 0; first < kPixels; first += kBlockPixels) {
        const std::size_t pixels = centred_block(images, mean, first, block.data());
        for (std::size_t face = 0; face < basis.rows(); face++) {
            double sums[kBlockPixels] = {};
            for (std::size_t image = 0; image < images.size(); image++) {
                const double weight = vectors.row(face)[image];
                for (std::size_t i = 0; i < pixels; i++) sums[i] += weight * block[image * kBlockPixels + i];
            }
            const double scale = 1 / std::sqrt(values[face]);
            for (std::size_t i = 0; i < pixels; i++) basis.row(face)[first + i] = sums[i] * scale;
        }
    }
}

std::string verify_basis(const std::vector<Matrix> &images, const double *mean, const std::vector<double> &values, const Matrix &basis, std::size_t rows) {
    const std::size_t step = std::max<std::size_t>(1, basis.rows() / rows);
    for (std::size_t r = 0; r < basis.rows(); r += step) {
        const double *face = basis.row(r);
        for (std::size_t c = 0; c <= r; c += step) {
            const double wanted = r == c ? 1 : 0, found = dot(face, basis.row(c), kPixels);
            if (!(std::abs(found - wanted) < 1e-6)) {
                return "eigenfaces " + std::to_string(r) + " and " + std::to_string(c) + " have the inner product " + std::to_string(found);
            }
        }
        // The scatter matrix S = sum over images of d d', d = image - mean: S f must be the eigenvalue times f.
        std::vector<double> product(kPixels, 0.0), centred(kPixels);
        for (const Matrix &image : images) {
            for (std::size_t i = 0; i < kPixels; i++) centred[i] = image.data()[i] - mean[i];
            const double weight = dot(centred.data(), face, kPixels);
            for (std::size_t i = 0; i < kPixels; i++) product[i] += weight * centred[i];
        }
        double error = 0;
        for (std::size_t i = 0; i < kPixels; i++) {
            const double difference = product[i] - values[r] * face[i];
            error += difference * difference;
        }
        if (!(std::sqrt(error) < 1e-6 * values[0])) return "eigenface " + std::to_string(r) + " is no eigenvector of the scatter matrix";
    }
    return {};
}
