// Face recognition: probe images are projected on a shared basis of eigenfaces and matched with the nearest known face.
//
// As where ALPBench's program (Li and others, IISWC 2005) projects its images: they are divided among the threads, each of which reads an image, subtracts the
// mean and takes its inner products with all eigenfaces.
//
// Naive placement: the main thread writes the basis once, so first touch puts all of it on its node, and every thread reads all of
// it from there for every probe.
#include "eigenfaces.hpp"
#include "numapilot_replica.h"
#include "options.h"
#include "phase.h"
#include "placement.h"
#include "team.hpp"

#include <algorithm>
#include <atomic>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

enum Variant { kNaive, kInterleaved, kReplicated, kApi };
const char *const kVariants[] = {"naive", "interleaved", "replicated", "api", nullptr};

struct Options {
    common_options common = COMMON_OPTIONS_DEFAULT;
    std::uint64_t subjects = 0, images = 3, faces = 0, probes = 0;
};

struct Preset {
    std::uint64_t subjects, faces, probes;
};
const Preset kPresets[] = {{12, 24, 64}, {40, 100, 1000}, {40, 100, 8000}, {40, 100, 60000}};
// Different probe images, at most: they are read again and again.
constexpr std::size_t kPhotographs = 256;

Options parse(int argc, char **argv) {
    Options options;
    const option_spec specs[] = {
        option_size(&options.common),
        option_choice("variant", &options.common.variant, kVariants, "where the pages of the basis go"),
        option_threads(&options.common),
        option_seed(&options.common),
        option_number("subjects", &options.subjects, 2, 300, "people to recognise"),
        option_number("images", &options.images, 2, 20, "training images of each"),
        option_number("faces", &options.faces, 1, 4000, "eigenfaces in the basis, fewer than training images"),
        option_number("probes", &options.probes, 1, 100000000, "images to recognise"),
    };
    const program program = {"facerec", "face recognition by projection on a shared basis", specs, sizeof specs / sizeof *specs};
    options_parse(&program, argc, argv);
    const Preset &preset = kPresets[options.common.size];
    if (!options.subjects) options.subjects = preset.subjects;
    if (!options.faces) options.faces = std::min(preset.faces, options.subjects * options.images - 1);
    if (!options.probes) options.probes = preset.probes;
    if (options.faces >= options.subjects * options.images) {
        fail(EXIT_USAGE, "--faces must be below --subjects times --images, %" PRIu64, options.subjects * options.images);
    }
    return options;
}

// The basis that a thread reads: the one and only, or the copy on the node where it runs now. The copies are made by hand (`replicated`: each by the first
// thread of its node that gets here) or by numapilot's library (`api`).
class SharedBasis {
  public:
    SharedBasis(const Matrix &original, std::uint64_t variant)
        : original_(original), replicas_(variant == kReplicated && placement_node_count() > 1 ? static_cast<std::size_t>(placement_node_count()) : 0) {
        if (variant != kApi) return;
        const std::size_t bytes = original.size() * sizeof(double);
        if (numapilot_replica_create(bytes, nullptr, &library_) != 0) throw std::bad_alloc();
        if (numapilot_replica_publish(library_, original.data()) != 0) throw std::bad_alloc();
    }
    ~SharedBasis() {
        if (library_) numapilot_replica_destroy(library_);
    }
    SharedBasis(const SharedBasis &) = delete;
    SharedBasis &operator=(const SharedBasis &) = delete;

    // Calls `use` with the first row, which is followed by the others.
    template <typename Use> void read(Use use) {
        if (library_) {
            use(static_cast<const double *>(numapilot_replica_enter(library_, nullptr)));
            numapilot_replica_leave(library_);
        } else {
            use(here().data());
        }
    }

  private:
    struct Replica {
        std::once_flag once;
        Matrix basis;
    };

    const Matrix &here() {
        if (replicas_.empty()) return original_;
        Replica &replica = replicas_[static_cast<std::size_t>(placement_current_node())];
        // The first thread of a node that gets here writes the copy, and so places it.
        std::call_once(replica.once, [&] {
            const std::size_t bytes = Matrix::bytes(original_.rows(), original_.columns());
            double *copy = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, bytes));
            need_memory(copy, bytes);
            std::copy_n(original_.data(), original_.size(), copy);
            replica.basis = Matrix(copy, original_.rows(), original_.columns());
        });
        return replica.basis;
    }

    const Matrix &original_;
    std::vector<Replica> replicas_;
    numapilot_replica *library_ = nullptr;
};

struct Model {
    std::vector<Matrix> images; // of all subjects in turn
    Matrix mean, basis, gallery; // gallery: coefficients of each training image
    std::vector<double> eigenvalues;
};

// Coefficients of an image in the basis. Leaves the mean subtracted from `image`.
void project(SharedBasis &shared, std::size_t faces, const double *mean, double *image, double *coefficients) {
    for (std::size_t i = 0; i < kPixels; i++) image[i] -= mean[i];
    shared.read([&](const double *basis) {
        for (std::size_t face = 0; face < faces; face++) coefficients[face] = dot(basis + face * kPixels, image, kPixels);
    });
}

Matrix new_row(std::size_t columns) {
    const std::size_t bytes = Matrix::bytes(1, columns);
    double *row = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, bytes));
    need_memory(row, bytes);
    return Matrix(row, 1, columns);
}

void train(Team &team, const Options &options, const Population &population, Model &model) {
    const std::size_t count = options.subjects * options.images;
    phase("images");
    for (std::size_t i = 0; i < count; i++) {
        double *image = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, Matrix::bytes(1, kPixels)));
        need_memory(image, Matrix::bytes(1, kPixels));
        population.photograph(i / options.images, i % options.images, image);
        model.images.emplace_back(image, 1, kPixels);
    }
    phase("train");
    model.mean = new_row(kPixels);
    mean_of(model.images, model.mean.data());
    double *gram_data = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, Matrix::bytes(count, count)));
    Matrix gram(static_cast<double *>(need_memory(gram_data, Matrix::bytes(count, count))), count, count);
    double *vectors_data = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, Matrix::bytes(count, count)));
    Matrix vectors(static_cast<double *>(need_memory(vectors_data, Matrix::bytes(count, count))), count, count);
    gram_of(model.images, model.mean.data(), gram);
    eigen_symmetric(gram, model.eigenvalues, vectors);

    const std::size_t basis_bytes = Matrix::bytes(options.faces, kPixels);
    double *basis = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, basis_bytes));
    need_memory(basis, basis_bytes);
    if (options.common.variant == kInterleaved && !placement_interleave(basis, basis_bytes)) touch_striped(team, basis, basis_bytes);
    model.basis = Matrix(basis, options.faces, kPixels);
    basis_of(model.images, model.mean.data(), model.eigenvalues, vectors, model.basis);
}

void enrol(Team &team, SharedBasis &shared, Model &model) {
    phase("enrol");
    const std::size_t count = model.images.size(), faces = model.basis.rows();
    double *gallery = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, Matrix::bytes(count, faces)));
    need_memory(gallery, Matrix::bytes(count, faces));
    model.gallery = Matrix(gallery, count, faces);
    team.run([&](int member) {
        Matrix image = new_row(kPixels);
        const Range mine = part_of(count, static_cast<std::size_t>(member), static_cast<std::size_t>(team.size()));
        for (std::size_t i = mine.begin; i < mine.end; i++) {
            std::copy_n(model.images[i].data(), kPixels, image.data());
            project(shared, faces, model.mean.data(), image.data(), model.gallery.row(i));
        }
    });
}

// The training image whose coefficients are nearest.
std::size_t nearest(const Matrix &gallery, const double *coefficients) {
    std::size_t best = 0;
    double best_distance = INFINITY;
    for (std::size_t i = 0; i < gallery.rows(); i++) {
        double distance = 0;
        for (std::size_t face = 0; face < gallery.columns(); face++) {
            const double difference = gallery.row(i)[face] - coefficients[face];
            distance += difference * difference;
        }
        if (distance < best_distance) {
            best_distance = distance;
            best = i;
        }
    }
    return best;
}

std::size_t photograph_of_probe(std::uint64_t probe) { return probe % kPhotographs; }

std::size_t subject_of_probe(const Options &options, std::uint64_t probe) {
    return mix64(options.common.seed ^ mix64(photograph_of_probe(probe))) % options.subjects;
}

// The probe images, each pixel as a file would have it.
class Album {
  public:
    Album(Team &team, const Options &options, const Population &population)
        : count_(std::min<std::size_t>(options.probes, kPhotographs)), pixels_(static_cast<float *>(std::aligned_alloc(PAGE_BYTES, bytes()))) {
        need_memory(pixels_, bytes());
        phase("photographs");
        team.run([&](int member) {
            std::vector<double> image(kPixels);
            const Range mine = part_of(count_, static_cast<std::size_t>(member), static_cast<std::size_t>(team.size()));
            for (std::size_t photograph = mine.begin; photograph < mine.end; photograph++) {
                population.photograph(subject_of_probe(options, photograph), options.images + photograph, image.data());
                std::transform(image.begin(), image.end(), pixels_ + photograph * kPixels, [](double pixel) { return static_cast<float>(pixel); });
            }
        });
    }
    ~Album() { std::free(pixels_); }
    Album(const Album &) = delete;
    Album &operator=(const Album &) = delete;

    void read(std::uint64_t probe, double *image) const {
        std::copy_n(pixels_ + photograph_of_probe(probe) * kPixels, kPixels, image);
    }

  private:
    std::size_t bytes() const { return (count_ * kPixels * sizeof(float) + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES; }

    std::size_t count_;
    float *pixels_;
};

struct Answer {
    std::uint64_t hash; // of the coefficients
    std::uint64_t match;
};

std::vector<Answer> recognise(Team &team, const Options &options, const Album &album, SharedBasis &shared, const Model &model) {
    phase("recognise");
    std::vector<Answer> answers(options.probes);
    std::atomic<std::uint64_t> next{0};
    team.run([&](int) {
        double *probe_image = static_cast<double *>(std::aligned_alloc(PAGE_BYTES, Matrix::bytes(1, kPixels)));
        Matrix image(static_cast<double *>(need_memory(probe_image, Matrix::bytes(1, kPixels))), 1, kPixels);
        Matrix coefficients = new_row(model.basis.rows());
        for (std::uint64_t probe = next++; probe < options.probes; probe = next++) {
            album.read(probe, image.data());
            project(shared, model.basis.rows(), model.mean.data(), image.data(), coefficients.data());
            const std::size_t match = nearest(model.gallery, coefficients.data()) / options.images;
            answers[probe] = {hash_bytes(match, coefficients.data(), coefficients.size() * sizeof(double)), match};
        }
    });
    return answers;
}

// One probe all over again, by the definition: no shared code but the photograph, sums in another order.
void verify_probe(const Options &options, const Album &album, const Model &model, std::uint64_t probe, std::uint64_t match) {
    std::vector<double> image(kPixels);
    album.read(probe, image.data());
    // Distances between projections from the training images themselves, |B(p - t)|, block of pixels by block of pixels.
    constexpr std::size_t kBlock = 50;
    static_assert(kPixels % kBlock == 0);
    const std::size_t faces = model.basis.rows(), count = model.images.size();
    std::vector<double> sums(count * faces, 0.0);
    for (std::size_t first = 0; first < kPixels; first += kBlock) {
        for (std::size_t t = 0; t < count; t++) {
            double difference[kBlock];
            for (std::size_t i = 0; i < kBlock; i++) difference[i] = image[first + i] - model.images[t].data()[first + i];
            for (std::size_t face = 0; face < faces; face++) {
                double sum = 0;
                for (std::size_t i = 0; i < kBlock; i++) sum += model.basis.row(face)[first + i] * difference[i];
                sums[t * faces + face] += sum;
            }
        }
    }
    std::vector<double> distances(count, 0.0);
    for (std::size_t t = 0; t < count; t++) {
        for (std::size_t face = 0; face < faces; face++) distances[t] += sums[t * faces + face] * sums[t * faces + face];
    }
    const std::size_t best = static_cast<std::size_t>(std::min_element(distances.begin(), distances.end()) - distances.begin());
    const double chosen = *std::min_element(&distances[match * options.images], &distances[(match + 1) * options.images - 1] + 1);
    if (chosen > distances[best] * (1 + 1e-9)) {
        fail(EXIT_WRONG_RESULT, "wrong result: probe %" PRIu64 " matches subject %zu, not %" PRIu64, probe, best / options.images, match);
    }
}

double verify(const Options &options, const Album &album, const Model &model, const std::vector<Answer> &answers) {
    phase_verify();
    const std::string problem = verify_basis(model.images, model.mean.data(), model.eigenvalues, model.basis, 3);
    if (!problem.empty()) fail(EXIT_WRONG_RESULT, "wrong result: %s", problem.c_str());
    verify_probe(options, album, model, options.probes / 2, answers[options.probes / 2].match);
    std::uint64_t right = 0;
    for (std::uint64_t probe = 0; probe < options.probes; probe++) right += answers[probe].match == subject_of_probe(options, probe);
    const double rate = static_cast<double>(right) / static_cast<double>(options.probes);
    // A handful of eigenfaces cannot tell people apart; then only the arithmetic is checked.
    const bool enough = options.faces >= 20 && options.probes >= 50;
    if (enough && rate < 0.95) fail(EXIT_WRONG_RESULT, "wrong result: only %.1f %% of the probes were recognised", rate * 100);
    return rate;
}

} // namespace

int main(int argc, char **argv) {
    const Options options = parse(argc, argv);
    std::fprintf(stderr, "facerec: %s, %" PRIu64 " threads\n", kVariants[options.common.variant], options.common.threads);
    try {
        const Population population(options.common.seed, options.subjects);
        Team team(static_cast<int>(options.common.threads));
        Model model;
        train(team, options, population, model);
        SharedBasis shared(model.basis, options.common.variant);
        enrol(team, shared, model);
        const Album album(team, options, population);
        const std::vector<Answer> answers = recognise(team, options, album, shared, model);
        const double rate = verify(options, album, model, answers);
        phase(nullptr);
        std::uint64_t checksum = 0;
        for (const Answer &answer : answers) checksum = mix64(checksum ^ answer.hash);
        std::printf("facerec ok probes=%" PRIu64 " faces=%zu pixels=%zu recognised=%.4f checksum=%016" PRIx64 "\n", options.probes,
                    model.basis.rows(), kPixels, rate, checksum);
    } catch (const std::bad_alloc &) {
        fail(EXIT_SYSTEM, "out of memory; choose a smaller --size");
    }
    return 0;
}
