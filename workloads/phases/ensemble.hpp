// An ensemble of states of a chaotic model (Lorenz, 1996): a ring of variables, each with one value per member, and what two groups of threads do
// with it in turn: forecast it, and correct it by observations. The true state, from which the observations are made, goes along as one more member.
#ifndef PHASES_ENSEMBLE_HPP
#define PHASES_ENSEMBLE_HPP

#include "random.h"
#include "team.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

constexpr std::size_t kMembers = 31, kStates = kMembers + 1, kTruth = kMembers;
constexpr double kForcing = 8, kTimeStep = 0.001, kObservationError = 0.5;

// All states' values of one variable lie together: 256 bytes.
struct Row {
    double state[kStates];
};

// Before and after a time step.
struct Ensemble {
    std::size_t variables;
    Row *now, *next;
};

// One step of a variable from its neighbours in the ring (Euler).
inline double model_step(double before2, double before1, double own, double after) {
    return own + kTimeStep * ((after - before2) * before1 - own + kForcing);
}

// Uniform in -1..1.
inline double noise(std::uint64_t seed, std::uint64_t stream) {
    rng rng = rng_of(seed, stream);
    return rng_unit(&rng) * 2 - 1;
}
inline double initial_truth(std::uint64_t seed, std::size_t variable) {
    return kForcing * (0.25 + 0.5 * noise(seed, variable));
}
// The members start around a first guess that is off by as much as they differ.
inline double initial_member(std::uint64_t seed, std::size_t variable, std::size_t member) {
    return initial_truth(seed, variable) + noise(seed + 1, variable) + noise(~seed, variable * kMembers + member);
}

// Observation `pass` of a variable: the truth plus an error that is uniform with standard deviation kObservationError.
inline double observe(std::uint64_t seed, double truth, std::uint64_t pass, std::size_t variable) {
    return truth + kObservationError * std::sqrt(3.0) * noise(seed ^ mix64(pass), variable);
}

// Advances the variables of `range` by one step, from `now` to `next`.
inline void forecast(const Ensemble &ensemble, Range range) {
    const std::size_t n = ensemble.variables;
    for (std::size_t i = range.begin; i < range.end; i++) {
        const Row &before2 = ensemble.now[(i + n - 2) % n], &before1 = ensemble.now[(i + n - 1) % n];
        const Row &own = ensemble.now[i], &after = ensemble.now[(i + 1) % n];
        Row &to = ensemble.next[i];
        for (std::size_t k = 0; k < kStates; k++) to.state[k] = model_step(before2.state[k], before1.state[k], own.state[k], after.state[k]);
    }
}

// Corrects the variables of `range` by one observation each: the ensemble Kalman filter with each variable by itself, in its square-root
// form (Whitaker and Hamill, 2002). Mean and spread become what two estimates of known variance give together.
inline void assimilate(const Ensemble &ensemble, Range range, std::uint64_t seed, std::uint64_t pass) {
    for (std::size_t i = range.begin; i < range.end; i++) {
        double *x = ensemble.now[i].state;
        double mean = 0, variance = 0;
        for (std::size_t k = 0; k < kMembers; k++) mean += x[k];
        mean /= kMembers;
        for (std::size_t k = 0; k < kMembers; k++) variance += (x[k] - mean) * (x[k] - mean);
        variance /= kMembers - 1;
        const double gain = variance / (variance + kObservationError * kObservationError), shrink = std::sqrt(1 - gain);
        const double corrected = mean + gain * (observe(seed, x[kTruth], pass, i) - mean);
        for (std::size_t k = 0; k < kMembers; k++) x[k] = corrected + shrink * (x[k] - mean);
    }
}

#endif
