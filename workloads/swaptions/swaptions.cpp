// Prices of swaptions by Monte Carlo simulation in the Heath-Jarrow-Morton model, as the program of this name in PARSEC (Bienia and others, PACT 2008).
//
// A thread works in a few KiB of its own and hardly ever misses its caches: nothing should be changed, and placement daemons should
// leave it alone (Dashti et al., ASPLOS 2013, name it among the insensitive ones).
#include "hjm.hpp"
#include "options.h"
#include "phase.h"
#include "random.h"
#include "team.hpp"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

enum Variant { kNaive };
const char *const kVariants[] = {"naive", nullptr};
constexpr std::uint64_t kBlock = 64; // paths between two fetches of work

struct Options {
    common_options common = COMMON_OPTIONS_DEFAULT;
    std::uint64_t swaptions = 0, paths = 0;
};

struct Preset {
    std::uint64_t swaptions, paths;
};
const Preset kPresets[] = {{4, 1024}, {32, 32768}, {64, 400000}, {128, 2000000}};

Options parse(int argc, char **argv) {
    Options options;
    const option_spec specs[] = {
        option_size(&options.common),
        option_choice("variant", &options.common.variant, kVariants, "there is nothing to place"),
        option_threads(&options.common),
        option_seed(&options.common),
        option_number("swaptions", &options.swaptions, 1, 100000, "swaptions to price"),
        option_number("paths", &options.paths, 2 * kBlock, 1u << 30, "simulated paths for each"),
    };
    const program program = {"swaptions", "prices of swaptions by Monte Carlo simulation", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const Preset &preset = kPresets[options.common.size];
    if (!options.swaptions) options.swaptions = preset.swaptions;
    if (!options.paths) options.paths = preset.paths;
    return options;
}

// Sum and sum of squares.
struct Moments {
    double sum = 0, squares = 0;
    void add(double x) {
        sum += x;
        squares += x * x;
    }
    void add(const Moments &other) {
        sum += other.sum;
        squares += other.squares;
    }
    double mean(double count) const { return sum / count; }
    double standard_error(double count) const { return std::sqrt(std::fmax(squares / count - mean(count) * mean(count), 0) / count); }
};

// Results of a block of paths, or of all of a swaption's.
struct Tally {
    Moments payer, bond, parity; // parity: payer less receiver
    void add(const Tally &other) {
        payer.add(other.payer);
        bond.add(other.bond);
        parity.add(other.parity);
    }
};

Swaption draw(const Market &market, std::uint64_t seed, std::uint64_t number) {
    rng rng = rng_of(~seed, number);
    Swaption swaption;
    const auto half = static_cast<std::uint32_t>(market.intervals() / 2);
    swaption.expiry = static_cast<int>(2 + rng_below(&rng, half - 1));
    swaption.tenor = static_cast<int>(2 + rng_below(&rng, half - 1));
    swaption.strike = 0.035 + 0.02 * rng_unit(&rng);
    return swaption;
}

std::vector<Tally> price(Team &team, const Options &options, const Market &market) {
    const std::uint64_t blocks = (options.paths + kBlock - 1) / kBlock;
    std::vector<Tally> tallies(options.swaptions * blocks);
    std::atomic<std::uint64_t> next{0};
    team.run([&](int) {
        PathSimulator simulator(market);
        for (std::uint64_t task = next++; task < tallies.size(); task = next++) {
            const Swaption swaption = draw(market, options.common.seed, task / blocks);
            rng rng = rng_of(options.common.seed, task);
            Tally tally;
            const std::uint64_t first = task % blocks * kBlock, last = std::min(first + kBlock, options.paths);
            for (std::uint64_t path = first; path < last; path++) {
                const Payoff payoff = simulator.simulate(swaption, &rng);
                tally.payer.add(payoff.payer);
                tally.bond.add(payoff.bond);
                tally.parity.add(payoff.payer - payoff.receiver);
            }
            tallies[task] = tally;
        }
    });
    std::vector<Tally> result(options.swaptions);
    for (std::uint64_t task = 0; task < tallies.size(); task++) result[task / blocks].add(tallies[task]);
    return result;
}

// What simulations must come to by theory, whatever the volatilities: bonds cost what they cost today, and a payer's swaption less a
// receiver's is the forward swap.
void verify(const Options &options, const Market &market, const std::vector<Tally> &prices) {
    // Five standard errors of a correct simulation are exceeded once in two million times.
    constexpr double kErrors = 5;
    const auto count = static_cast<double>(options.paths);
    double worst = 0;
    for (std::uint64_t number = 0; number < options.swaptions; number++) {
        const Swaption swaption = draw(market, options.common.seed, number);
        const Tally &tally = prices[number];
        double fixed = 0;
        for (int i = 1; i <= swaption.tenor; i++) fixed += swaption.strike * market.interval * market.bond(swaption.expiry + i);
        const double swap = market.bond(swaption.expiry) - market.bond(swaption.expiry + swaption.tenor) - fixed;
        const double bond_off = std::fabs(tally.bond.mean(count) - market.bond(swaption.expiry)) / tally.bond.standard_error(count);
        const double swap_off = std::fabs(tally.parity.mean(count) - swap) / tally.parity.standard_error(count);
        worst = std::fmax(worst, std::fmax(bond_off, swap_off));
        if (!(bond_off <= kErrors && swap_off <= kErrors)) {
            fail(EXIT_WRONG_RESULT, "wrong result: swaption %" PRIu64 " is off by %.1f (bond) and %.1f (swap) standard errors", number, bond_off, swap_off);
        }
        if (!(tally.payer.sum >= 0)) fail(EXIT_WRONG_RESULT, "wrong result: swaption %" PRIu64 " has a negative price", number);
    }
    std::fprintf(stderr, "  at most %.1f standard errors from theory\n", worst);
}

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    std::fprintf(stderr, "swaptions: %s, %" PRIu64 " threads\n", kVariants[options.common.variant], options.common.threads);
    try {
        const Market market = market_of(24, 0.5);
        Team team(static_cast<int>(options.common.threads));
        phase("price");
        const std::vector<Tally> prices = price(team, options, market);
        phase_verify();
        verify(options, market, prices);
        phase(nullptr);
        double total = 0;
        std::uint64_t checksum = 0;
        for (const Tally &tally : prices) {
            total += tally.payer.mean(static_cast<double>(options.paths));
            checksum = hash_bytes(checksum, &tally, sizeof tally);
        }
        std::printf("swaptions ok swaptions=%" PRIu64 " paths=%" PRIu64 " total=%.9f checksum=%016" PRIx64 "\n", options.swaptions, options.paths, total,
                    checksum);
    } catch (const std::bad_alloc &) {
        fail(EXIT_SYSTEM, "out of memory; choose a smaller --size");
    }
    return 0;
}
