// Two groups of threads that take turns on two halves of the data: one group forecasts an ensemble while the other corrects the other ensemble by
// observations (ensemble data assimilation: Evensen, 1994; the model is Lorenz's of 1996); then they swap. What one group
// produces the other consumes, phase after phase: the pattern that MemProf (Lachaize, Lepers, Quema, USENIX ATC 2012) calls alternate remote accesses.
//
// Naive: the forecasting group touches both halves first, so whatever the other group does is remote; and whichever node a half is moved to, the
// next phase comes from elsewhere. Local: no groups, each thread both forecasts and corrects a part of its own.
#include "ensemble.hpp"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "team.hpp"

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

namespace {

enum Variant { kNaive, kLocal };
const char *const kVariants[] = {"naive", "local", nullptr};
constexpr std::size_t kHalves = 2;
enum Job { kForecast, kAssimilate };

struct Options {
    common_options common = COMMON_OPTIONS_DEFAULT;
    std::uint64_t variables = 0, phases = 0, phase_ms = 0;
};

struct Preset {
    std::uint64_t variables, phases, phase_ms;
};
// `small`: two halves of 2 x 32 MiB: the part of a half that the threads of one node share exceeds its caches, in either job.
const Preset kPresets[] = {{512, 4, 1}, {131072, 6, 64}, {131072, 8, 500}, {524288, 16, 2000}};
// A phase's passes are counted, not timed, so that the result does not depend on the machine: in a nominal millisecond eight threads pass over
// this much together, as they do on the simulated four-node Opteron without congestion.
constexpr std::uint64_t kNominalBytes = 12u << 20;

Options parse(int argc, char **argv) {
    Options options;
    const option_spec specs[] = {
        option_size(&options.common),
        option_choice("variant", &options.common.variant, kVariants, "who works on which half"),
        option_threads(&options.common),
        option_seed(&options.common),
        option_number("variables", &options.variables, 64, 1u << 24, "variables of the model"),
        option_number("phases", &options.phases, 2, 100000, "phases; the groups swap after each"),
        option_number("phase-ms", &options.phase_ms, 1, 1000000, "length of a phase, nominal milliseconds with 16 threads"),
    };
    const program program = {"phases", "two groups of threads that swap halves of the data", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const Preset &preset = kPresets[options.common.size];
    if (!options.variables) options.variables = preset.variables;
    if (!options.phases) options.phases = preset.phases;
    if (!options.phase_ms) options.phase_ms = preset.phase_ms;
    return options;
}

// Passes over a half in a phase.
std::uint64_t passes_of(const Options &options) {
    const std::uint64_t pass_bytes = 2 * options.variables * sizeof(Row); // read one array, write the other
    return std::max<std::uint64_t>(1, options.phase_ms * kNominalBytes / pass_bytes);
}

// A thread's place: which group it belongs to, and which of how many parts is its own.
struct Seat {
    std::size_t group;
    std::size_t part, parts;
};

// Threads in the order of the nodes on which they run now: the first half is group 0. With one thread it is both.
std::vector<Seat> seat(Team &team) {
    std::vector<int> nodes(static_cast<std::size_t>(team.size()));
    team.run([&](int member) { nodes[static_cast<std::size_t>(member)] = placement_current_node(); });
    std::vector<std::size_t> order(nodes.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return nodes[a] < nodes[b]; });
    std::vector<Seat> seats(nodes.size());
    const std::size_t first = (order.size() + 1) / 2;
    for (std::size_t i = 0; i < order.size(); i++) {
        seats[order[i]] = i < first ? Seat{0, i, first} : Seat{1, i - first, order.size() - first};
    }
    return seats;
}

// A barrier of some of the team's threads.
class Barrier {
  public:
    explicit Barrier(std::size_t size) {
        if (pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(size))) fail(EXIT_SYSTEM, "cannot make a barrier for %zu threads", size);
    }
    Barrier(const Barrier &) = delete;
    Barrier &operator=(const Barrier &) = delete;
    ~Barrier() { pthread_barrier_destroy(&barrier_); }
    void wait() { pthread_barrier_wait(&barrier_); }

  private:
    pthread_barrier_t barrier_;
};

class Run {
  public:
    Run(Team &team, const Options &options)
        : team_(team), options_(options), passes_(passes_of(options)), seats_(seat(team)), whole_(static_cast<std::size_t>(team.size())) {
        for (std::size_t group = 0; group < kHalves; group++) {
            const auto size = std::count_if(seats_.begin(), seats_.end(), [&](const Seat &seat) { return seat.group == group; });
            groups_.push_back(std::make_unique<Barrier>(static_cast<std::size_t>(std::max<std::ptrdiff_t>(size, 1))));
        }
        const std::size_t bytes = whole_pages(options.variables * sizeof(Row));
        Row *half_0 = static_cast<Row *>(std::aligned_alloc(PAGE_BYTES, 2 * bytes));
        Row *half_1 = static_cast<Row *>(std::aligned_alloc(PAGE_BYTES, 2 * bytes));
        for (Row *half : {half_0, half_1}) {
            need_memory(half, 2 * bytes);
            halves_.push_back({options.variables, half, half + bytes / sizeof(Row)});
            memory_.push_back(half);
        }
        initialise();
    }
    Run(const Run &) = delete;
    Run &operator=(const Run &) = delete;
    ~Run() {
        for (Row *half : memory_) std::free(half);
    }

    void phases() {
        for (std::uint64_t number = 0; number < options_.phases; number++) {
            phase(number % 2 ? "odd" : "even");
            team_.run([&](int member) { work(static_cast<std::size_t>(member), number); });
            const std::size_t half = forecast_half(number);
            if (passes_ % 2) std::swap(halves_[half].now, halves_[half].next);
        }
    }

    // The true states against a serial computation, exactly; and the members' mean must have come near them.
    void verify() const {
        for (std::size_t half = 0; half < kHalves; half++) {
            const Ensemble &ensemble = halves_[half];
            const std::uint64_t forecasts = (options_.phases + 1 - half) / 2 * passes_;
            const std::vector<double> truth = reference_truth(half, forecasts);
            double start = 0, end = 0;
            for (std::size_t i = 0; i < truth.size(); i++) {
                const double *x = ensemble.now[i].state;
                if (x[kTruth] != truth[i]) fail(EXIT_WRONG_RESULT, "wrong result: variable %zu is %.15g, not %.15g", i, x[kTruth], truth[i]);
                double mean = 0, first_guess = 0;
                for (std::size_t k = 0; k < kMembers; k++) {
                    mean += x[k] / kMembers;
                    first_guess += initial_member(seed_of(half), i, k) / kMembers;
                }
                start += std::pow(first_guess - initial_truth(seed_of(half), i), 2);
                end += std::pow(mean - truth[i], 2);
            }
            const double count = static_cast<double>(truth.size()), rms_start = std::sqrt(start / count), rms = std::sqrt(end / count);
            std::fprintf(stderr, "  half %zu: error %.3f, %.3f at first\n", half, rms, rms_start);
            // Over longer phases chaos wins, and a few observations do not help much.
            const bool comparable = passes_ * kTimeStep <= 1 && passes_ * options_.phases >= 20;
            if (comparable && !(rms < 0.5 * rms_start)) fail(EXIT_WRONG_RESULT, "wrong result: half %zu is off by %g, by %g at first", half, rms, rms_start);
        }
    }

    std::uint64_t checksum() const {
        std::uint64_t hash = 0;
        for (const Ensemble &half : halves_) hash = hash_bytes(hash, half.now, half.variables * sizeof(Row));
        return hash;
    }
    std::uint64_t passes() const { return passes_; }

  private:
    std::uint64_t seed_of(std::size_t half) const { return mix64(options_.common.seed * kHalves + half); }
    // In even phases half 0 is forecast and half 1 corrected, in odd ones the other way round.
    static std::size_t forecast_half(std::uint64_t number) { return number % 2; }

    // Calls `act` for each job with this thread's part of a half. Naive: a thread has the job of its group; local, and with one thread: both.
    template <class Act> void each_job(std::size_t member, const Act &act) {
        const Seat &seat = seats_[member];
        if (options_.common.variant == kLocal || seats_.size() == 1) {
            for (Job job : {kForecast, kAssimilate}) act(job, part_of(options_.variables, member, seats_.size()), whole_);
        } else {
            act(seat.group == 0 ? kForecast : kAssimilate, part_of(options_.variables, seat.part, seat.parts), *groups_[seat.group]);
        }
    }

    // The forecasting threads write both halves first.
    void initialise() {
        team_.run([&](int member) {
            each_job(static_cast<std::size_t>(member), [&](Job job, Range range, Barrier &) {
                for (std::size_t half = 0; job == kForecast && half < kHalves; half++) {
                    const Ensemble &ensemble = halves_[half];
                    for (std::size_t i = range.begin; i < range.end; i++) {
                        for (std::size_t k = 0; k < kMembers; k++) ensemble.now[i].state[k] = initial_member(seed_of(half), i, k);
                        ensemble.now[i].state[kTruth] = initial_truth(seed_of(half), i);
                        ensemble.next[i] = ensemble.now[i];
                    }
                }
            });
        });
    }

    void work(std::size_t member, std::uint64_t number) {
        each_job(member, [&](Job job, Range range, Barrier &barrier) {
            const std::size_t half = job == kForecast ? forecast_half(number) : 1 - forecast_half(number);
            Ensemble ensemble = halves_[half];
            for (std::uint64_t pass = 0; pass < passes_; pass++) {
                if (job == kAssimilate) {
                    assimilate(ensemble, range, seed_of(half), number * passes_ + pass);
                    continue;
                }
                forecast(ensemble, range);
                std::swap(ensemble.now, ensemble.next);
                // The next step reads the neighbours' parts.
                barrier.wait();
            }
        });
    }

    std::vector<double> reference_truth(std::size_t half, std::uint64_t steps) const {
        const std::size_t n = options_.variables;
        std::vector<double> now(n), next(n);
        for (std::size_t i = 0; i < n; i++) now[i] = initial_truth(seed_of(half), i);
        for (std::uint64_t step = 0; step < steps; step++) {
            for (std::size_t i = 0; i < n; i++) next[i] = model_step(now[(i + n - 2) % n], now[(i + n - 1) % n], now[i], now[(i + 1) % n]);
            now.swap(next);
        }
        return now;
    }

    Team &team_;
    const Options &options_;
    std::uint64_t passes_;
    std::vector<Seat> seats_;
    Barrier whole_; // of all threads; groups_: of each group's
    std::vector<std::unique_ptr<Barrier>> groups_;
    std::vector<Ensemble> halves_;
    std::vector<Row *> memory_;
};

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    std::fprintf(stderr, "phases: %s, %" PRIu64 " threads\n", kVariants[options.common.variant], options.common.threads);
    try {
        Team team(static_cast<int>(options.common.threads));
        phase("start");
        Run run(team, options);
        run.phases();
        phase_verify();
        run.verify();
        phase(nullptr);
        std::printf("phases ok variables=%" PRIu64 " phases=%" PRIu64 " passes=%" PRIu64 " checksum=%016" PRIx64 "\n", options.variables, options.phases,
                    run.passes(), run.checksum());
    } catch (const std::bad_alloc &) {
        fail(EXIT_SYSTEM, "out of memory; choose a smaller --size");
    }
    return 0;
}
