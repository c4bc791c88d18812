// Training: the eigenfaces of a set of images, by the Gram trick.
//
// Published: Turk and Pentland, "Eigenfaces for Recognition", Journal of Cognitive Neuroscience, 1991. With fewer images than
// pixels, the eigenvectors of the covariance matrix are combinations of the images, whose weights are the eigenvectors of the
// small matrix of the images' inner products.
#ifndef FACEREC_EIGENFACES_HPP
#define FACEREC_EIGENFACES_HPP

#include "faces.hpp"

#include <string>
#include <vector>

// Eigenvalues, descending, and eigenvectors (rows) of a symmetric matrix, by cyclic Jacobi rotations. Destroys `a`.
void eigen_symmetric(Matrix &a, std::vector<double> &values, Matrix &vectors);

// Mean of the images (each a matrix of one row of kPixels).
void mean_of(const std::vector<Matrix> &images, double *mean);

// Inner products of the images less the mean, in blocks of pixels that stay in cache. Writes images x images.
void gram_of(const std::vector<Matrix> &images, const double *mean, Matrix &gram);

// Writes one eigenface, of unit length, into each row of `basis`: the main thread's only pass over it.
void basis_of(const std::vector<Matrix> &images, const double *mean, const std::vector<double> &values, const Matrix &vectors, Matrix &basis);

// Inner product of n numbers into two sums, as ALPBench's portable loop has it.
double dot(const double *a, const double *b, std::size_t n);

// Checks `basis` against the definition: unit length, orthogonal, and each an eigenvector of the Gram matrix's eigenvalue.
// Empty when it holds, else what is wrong. Looks at a few rows only, of `rows` spread over the basis.
std::string verify_basis(const std::vector<Matrix> &images, const double *mean, const std::vector<double> &values, const Matrix &basis, std::size_t rows);

#endif
