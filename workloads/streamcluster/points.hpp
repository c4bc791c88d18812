// The points of the stream: how they lie in memory, and the mixture that generates them.
#ifndef STREAMCLUSTER_POINTS_HPP
#define STREAMCLUSTER_POINTS_HPP

#include "random.h"

#include <cstddef>
#include <cstdint>
#include <vector>

// A weighted point. `coord` points into the block that holds the coordinates of all points of a chunk.
struct Point {
    float *coord;
    std::int64_t assign; // index of the centre that serves it
    float weight;
    float cost; // weight times the squared distance to that centre
};

struct Points {
    std::size_t num;
    int dim; // a multiple of 4
    Point *p;
};

// Squared Euclidean distance, one dimension at a time into one sum, as PARSEC's program has it: a compiler that keeps the order of floating-point
// additions cannot use vectors, and each addition waits for the one before. That is most of what a core does for each byte that it reads.
inline float squared_distance(const float *a, const float *b, int dim) {
    float sum = 0;
    for (int i = 0; i < dim; i++) {
        const float difference = a[i] - b[i];
        sum += difference * difference;
    }
    return sum;
}

// An endless stream of points around `clusters` true centres in the unit cube. Point n is a function of the seed and n alone.
class Mixture {
  public:
    Mixture(std::uint64_t seed, int clusters, int dim) : seed_(seed), dim_(dim), centres_(static_cast<std::size_t>(clusters * dim)) {
        rng rng = rng_of(seed, ~0ull);
        for (float &x : centres_) x = static_cast<float>(rng_unit(&rng));
    }
    int clusters() const { return static_cast<int>(centres_.size()) / dim_; }
    // Writes the coordinates of point `n` and returns the cluster from which it was drawn.
    int draw(std::uint64_t n, float *coord) const {
        rng rng = rng_of(seed_, n);
        const int cluster = static_cast<int>(rng_below(&rng, static_cast<std::uint32_t>(clusters())));
        const float *centre = this->centre(cluster);
        for (int d = 0; d < dim_; d += 4) {
            std::uint64_t bits = rng_next(&rng);
            for (int i = 0; i < 4; i++, bits >>= 16) coord[d + i] = centre[d + i] + kSpread * (static_cast<float>(bits & 0xffff) - 32767.5f);
        }
        return cluster;
    }
    const float *centre(int cluster) const { return &centres_[static_cast<std::size_t>(cluster * dim_)]; }

  private:
    static constexpr float kSpread = 0.25f / 32768; // uniform noise of +-0.25 per dimension
    std::uint64_t seed_;
    int dim_;
    std::vector<float> centres_;
};

#endif
