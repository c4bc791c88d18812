// The Heath-Jarrow-Morton model of interest rates, discrete in time and maturity (Glasserman, Monte Carlo Methods in Financial Engineering,
// 2004, section 3.6): forward rates for each future interval, moved by three factors.
#ifndef SWAPTIONS_HJM_HPP
#define SWAPTIONS_HJM_HPP

#include "random.h"

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

constexpr int kFactors = 3;

// The right to swap, after `expiry` intervals, fixed payments of `strike` for floating ones over `tenor` intervals.
struct Swaption {
    int expiry, tenor; // intervals
    double strike;     // rate per year
};

struct Market {
    double interval;               // years
    std::vector<double> forward;   // today's rate per year for each interval
    std::vector<double> volatility[kFactors]; // by intervals to maturity
    int intervals() const { return static_cast<int>(forward.size()); }
    // Today's price of 1 paid at the end of `intervals` intervals.
    double bond(int intervals) const {
        double sum = 0;
        for (int i = 0; i < intervals; i++) sum += forward[static_cast<std::size_t>(i)];
        return std::exp(-interval * sum);
    }
};

inline Market market_of(int intervals, double interval) {
    Market market;
    market.interval = interval;
    for (int i = 0; i < intervals; i++) {
        const double years = interval * i;
        market.forward.push_back(0.03 + 0.02 * (1 - std::exp(-years / 3)));
        market.volatility[0].push_back(0.010);
        market.volatility[1].push_back(0.008 * std::exp(-0.3 * years));
        market.volatility[2].push_back(0.006 * (years / 5 - 0.5) * std::exp(-0.2 * years));
    }
    return market;
}

// What one path pays for a swaption, discounted to today: the payer's side, the receiver's, and 1 paid at expiry.
struct Payoff {
    double payer, receiver, bond;
};

// One thread's room for a path: all that the simulation touches, a few KiB.
class PathSimulator {
  public:
    explicit PathSimulator(const Market &market) : market_(market), rates_(market.forward.size()), drift_(market.forward.size()) {
        // The drift that makes every discounted bond a martingale in this discrete model: differences of squares of summed volatilities.
        const double dt = market.interval;
        for (int k = 0; k < kFactors; k++) {
            double sum = 0;
            for (std::size_t i = 0; i < drift_.size(); i++) {
                const double next = sum + market.volatility[k][i] * dt;
                drift_[i] += (next * next - sum * sum) / (2 * dt);
                sum = next;
            }
        }
    }

    Payoff simulate(const Swaption &swaption, rng *rng) {
        const double dt = market_.interval, root = std::sqrt(dt);
        const int horizon = swaption.expiry + swaption.tenor;
        for (int i = 0; i < horizon; i++) rates_[static_cast<std::size_t>(i)] = market_.forward[static_cast<std::size_t>(i)];
        double discount = 0;
        for (int step = 0; step < swaption.expiry; step++) {
            discount += rates_[static_cast<std::size_t>(step)] * dt;
            const std::array<double, kFactors> shocks = normals(rng);
            // Rates of intervals still to come; `i - step - 1` intervals of life are left after this step.
            for (int i = step + 1; i < horizon; i++) {
                const auto left = static_cast<std::size_t>(i - step - 1);
                double change = drift_[left] * dt;
                for (int k = 0; k < kFactors; k++) change += market_.volatility[k][left] * shocks[static_cast<std::size_t>(k)] * root;
                rates_[static_cast<std::size_t>(i)] += change;
            }
        }
        return settle(swaption, std::exp(-discount));
    }

  private:
    Payoff settle(const Swaption &swaption, double discounted) const {
        double sum = 0, fixed = 0, bond = 1;
        for (int i = swaption.expiry; i < swaption.expiry + swaption.tenor; i++) {
            sum += rates_[static_cast<std::size_t>(i)] * market_.interval;
            bond = std::exp(-sum);
            fixed += swaption.strike * market_.interval * bond;
        }
        const double value = (1 - bond) - fixed; // of receiving floating and paying fixed, at expiry
        return {discounted * std::fmax(value, 0), discounted * std::fmax(-value, 0), discounted};
    }

    // Standard normal numbers by the polar method of Marsaglia.
    static std::array<double, kFactors> normals(rng *rng) {
        std::array<double, kFactors + 1> result;
        for (std::size_t k = 0; k < kFactors; k += 2) {
            double u, v, square;
            do {
                u = 2 * rng_unit(rng) - 1;
                v = 2 * rng_unit(rng) - 1;
                square = u * u + v * v;
            } while (square >= 1 || square == 0);
            const double scale = std::sqrt(-2 * std::log(square) / square);
            result[k] = u * scale;
            result[k + 1] = v * scale;
        }
        return {result[0], result[1], result[2]};
    }

    const Market &market_;
    std::vector<double> rates_, drift_;
};

#endif
